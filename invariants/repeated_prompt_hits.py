"""No silent 0%. The state of a shared prefix was kept only where the first prompt's chunk ended, so
that prompts which part before it hit nothing, however often they came (#43587, #45238).

A prompt served before hits all its whole blocks but the last token's. A prompt that parts from
another one cannot hit a Mamba state nobody kept; but the second to come sees where they part, and
from the third on the shared part must hit (#37898). Eviction clears the record.
"""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import in_common
from kvproof.invariants.hits import alike_after_hit, has_room, longest
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.step import Admission, Step


def owed(cluster: Cluster, step: Step, admission: Admission) -> int:
    """Tokens this admission must find in the local cache."""
    cfg = cluster.engine(admission.engine)
    known = len(admission.tokens)
    limit = longest(cfg, known, known)
    everywhere = all(g.kind == "full" for g in cfg.groups)
    if cluster.sessions and cfg.retention is not None and not everywhere:
        return 0  # of a session is kept what its first part would resume at, sent by itself
    if cluster.follow_up_turns and cfg.role == "prefill" and not everywhere:
        return 0  # what P loaded of an earlier turn it has not computed
    if cfg.role == "decode" and not everywhere:
        transfer = step.before.transfer(admission.request)
        if transfer is None or transfer.phase != Phase.OFFERED:
            return 0  # D has not computed what it loaded: no states, and only the end of a window
        if any(g.kind == "window" for g in cfg.groups) or not admission.external:
            return 0
        everywhere = True  # P brings the state, after at least one token of D's cache
        limit = min(limit, longest(cfg, transfer.tokens, known))
    best = 0
    for served in admission.served:
        common = in_common(served.prompt, admission.tokens)
        if everywhere:
            kept = min(longest(cfg, known, common), limit)
        elif common == len(served.prompt):
            kept = longest(cfg, common, common)
        else:
            kept = served.shared if common >= served.shared + alike_after_hit(cfg) else 0
        roomy = not cfg.partial_block_hits or has_room(cfg, kept, known)
        best = max(best, kept if kept <= limit and roomy else 0)
    return best


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The local hit is at least what is owed."""
    for admission in step.effects.admissions:
        if not cluster.engine(admission.engine).prefix_caching:
            continue
        before = {key for key, _ in step.before.engine(admission.engine).cached}
        if before - {key for key, _ in admission.cached}:
            continue  # evicted earlier in this step: nothing is owed
        due = owed(cluster, step, admission)
        if admission.hit < due:
            yield because(
                f"{len(admission.served)} prompts were served on {admission.engine} and nothing "
                f"was evicted, so {due} tokens of {admission.request} are owed",
                f"{admission.hit} are hit",
                engine=admission.engine,
                request=admission.request,
            )


INVARIANT = Invariant(
    id="repeated_prompt_hits",
    name="a repeated prompt hits as much as its groups can give",
    origin="vllm#43587",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    killed_by="state_only_at_last_boundary",
)
