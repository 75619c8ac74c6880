"""vLLM cached the Mamba state of a shared prefix only where the last chunk of the first prompt
ended. Prompts that differ before that token hit 0 tokens, however often the prefix came
(vllm#43587, vllm#45238).

A repeated prompt must hit all its full blocks except the block of the last token. A prompt that
differs from an earlier prompt cannot hit a Mamba state that no request cached. The second such
prompt shows the shared prefix boundary, and from the third prompt on the shared prefix must be hit
(vllm#37898). Eviction ends this duty.
"""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import in_common
from kvproof.invariants.hits import alike_after_hit, has_room, longest
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.step import Admission, Step
from kvproof.model.subjects import Subject


def owed(cluster: Cluster, step: Step, admission: Admission) -> int:
    """Tokens that this admission must find in the local cache."""
    cfg = cluster.engine(admission.engine)
    known = len(admission.tokens)
    loads = admission.external > 0
    limit = longest(cfg, known, known, loads)
    everywhere = all(g.kind == "full" for g in cfg.groups)
    if cluster.sessions and cfg.retention is not None and not everywhere:
        return 0  # a session caches only the states at which its first part alone would resume
    if cluster.follow_up_turns and cfg.role == "prefill" and not everywhere:
        return 0  # P has not computed the earlier turn that it loaded
    if cfg.store and cfg.partial_block_hits:
        return 0  # a prompt that the store loaded left no state at its end in the cache
    if cfg.role == "decode" and not everywhere:
        transfer = step.before.transfer(admission.request)
        if cfg.store:
            return 0  # a hit in all groups at once: a store does not bring what some of them lack
        if transfer is None or transfer.phase != Phase.OFFERED:
            return 0  # D computed no states of the loaded tokens, and has only the end of a window
        if any(g.kind == "window" for g in cfg.groups) or not loads:
            return 0
        everywhere = True  # P sends the state, after at least one token of D's cache
        limit = min(limit, longest(cfg, transfer.tokens, known, loads))
    best = 0
    for served in admission.served:
        common = in_common(served.prompt, admission.tokens)
        if everywhere:
            kept = min(longest(cfg, known, common, loads), limit)
        elif common == len(served.prompt):
            kept = longest(cfg, common, common, loads)
        else:
            kept = served.shared if common >= served.shared + alike_after_hit(cfg) else 0
        if cluster.sessions and cfg.partial_block_hits and cfg.aligned_group and not everywhere:
            # Inside a block it caches only the state at which its first part alone would resume.
            kept -= kept % cfg.aligned_group.block_size
        roomy = not cfg.partial_block_hits or has_room(cfg, kept, known)
        best = max(best, kept if kept <= limit and roomy else 0)
    return best


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The local hit is at least `owed` tokens."""
    for admission in step.effects.admissions:
        if not cluster.engine(admission.engine).prefix_caching:
            continue
        before = {key for key, _ in step.before.engine(admission.engine).cached}
        if before - {key for key, _ in admission.cached}:
            continue  # evicted earlier in this step: no hit is required
        due = owed(cluster, step, admission)
        if admission.hit < due:
            yield because(
                reason(
                    "must_hit",
                    "{served} prompts were served on {engine} and nothing was "
                    "evicted, so {request} must hit {due} tokens",
                    served=len(admission.served),
                    due=due,
                ),
                reason("hits", "it hits {hit} tokens", hit=admission.hit),
                engine=admission.engine,
                request=admission.request,
            )


INVARIANT = Invariant(
    id="repeated_prompt_hits",
    name="a repeated prompt hits as many tokens as its groups can serve",
    origin="vllm#43587",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.SERVED, Need.WINDOWS_KEPT),
    subjects=(Subject.HIT, Subject.COMPUTED),
    killed_by="state_only_at_last_boundary",
)
