"""A block is registered in the cache only up to the last boundary that all groups share, although
hits may end between two such boundaries (vllm#52419). Whoever shares the prompt computes the rest
again; all answers stay correct.

What a later hit takes in a full-attention group must be cached when the request that computed the
prompt has ended: while it goes on, it may cache its blocks a step later. States and windows are
cached at some boundaries only, and say nothing here.
"""

from collections.abc import Iterator

from kvproof.invariants.hits import alike_after_hit, may_end_at, positions
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import SENDING, Engine, Key
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def owed(cfg: EngineConfig, prompt: str) -> Iterator[Key]:
    """The keys that a hit in this prompt may need: of each whole block of the prompt, in each group
    with full attention."""
    ahead = cfg.hash_lookahead_tokens
    top = len(prompt) - alike_after_hit(cfg, ended=True)
    hit = next((hit for hit in range(top, 0, -1) if may_end_at(cfg, hit)), 0)
    for index, group in enumerate(cfg.groups):
        if group.kind != "full":
            continue
        for position in positions(cfg, group, hit):
            end = (position + 1) * group.block_size + ahead
            if end <= len(prompt):
                yield index, prompt[:end]


def _goes_on(engine: Engine, prompt: str) -> bool:
    """Whether a request with this prompt has not ended."""
    return any(r.status != SENDING and r.tokens.startswith(prompt) for r in engine.requests)


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Nothing is missing of a prompt that an ended request has computed just now."""
    for before, after in step.touched:
        cfg = cluster.engine(after.name)
        if after.ghost.served == before.ghost.served or not cfg.prefix_caching:
            continue
        keys = {key for key, blocks in after.cached if blocks}
        for served in sorted({*after.ghost.served} - {*before.ghost.served}):
            if _goes_on(after, served.prompt):
                continue
            for index, prefix in owed(cfg, served.prompt):
                if (index, prefix) not in keys:
                    yield because(
                        reason(
                            "prompt_computed",
                            "{engine} has computed a prompt of {tokens} tokens",
                            tokens=len(served.prompt),
                        ),
                        reason(
                            "block_not_cached",
                            "group {group} has not cached its block that ends with token {end}",
                            end=len(prefix),
                        ),
                        engine=after.name,
                        group=index,
                    )
                    break


INVARIANT = Invariant(
    id="computed_prompt_is_cached",
    name="full attention has cached each block of a computed prompt that a hit may need",
    origin="vllm#52419",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.SERVED,),
    subjects=(Subject.HIT, Subject.COMPUTED),
    killed_by="blocks_after_the_boundary_not_cached",
)
