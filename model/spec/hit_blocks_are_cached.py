"""A hit gives a request the blocks that are cached under the request's own prefixes. A block that
is cached under another prefix, or not cached, belongs to another prompt (vllm#53142).

A hit that ends inside an attention block may use a block cached under a longer prefix. A Mamba
state is valid only at the end of the hit.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.events import Admit, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import NULL
from kvproof.model.step import Admission, Step


def _serves(cfg: EngineConfig, group: Group, key: str, position: int, admission: Admission) -> bool:
    """Whether a block cached under this prefix may be at this position of the block table. The
    tokens after the block that its hash covers must be the request's tokens too."""
    tokens, first = admission.tokens, position * group.block_size
    if not tokens.startswith(key):
        return False
    prefix = key[: len(key) - cfg.hash_lookahead_tokens]
    end = first + group.block_size
    if not group.attention:
        return first < len(prefix) <= min(end, admission.hit)
    long_enough = len(prefix) >= min(end, admission.hit)
    return first < len(prefix) <= end and long_enough


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each block of a hit is cached under a prefix of the request at the time of the lookup."""
    engines = scheduled(step)
    if engines is None or not isinstance(step.event, Schedule):
        return
    cfg = cluster.engine(engines.after.name)
    admissions = {a.request: a for a in step.effects.admissions}
    for choice in step.event.chose or ():
        if not isinstance(choice, Admit) or choice.request not in admissions:
            continue
        admission = admissions[choice.request]
        for index, blocks in enumerate(choice.hit):
            for position, block in enumerate(blocks):
                prefixes = [k[1] for k, held in admission.cached if k[0] == index and block in held]
                if block == NULL or any(
                    _serves(cfg, cfg.groups[index], p, position, admission) for p in prefixes
                ):
                    continue
                yield because(
                    reason(
                        "gets_block",
                        "{request} on {engine} hits {local_hit} tokens and gets "
                        "block {block} at position {position} of group {group}",
                        local_hit=choice.local_hit,
                        position=position,
                    ),
                    reason(
                        "is_cached",
                        "block {block} is cached as {prefixes:or nothing}",
                        prefixes=prefixes,
                    ),
                    engine=engines.after.name,
                    request=choice.request,
                    group=index,
                    block=block,
                )


GUARD = Guard(
    id="hit_blocks_are_cached",
    name="every block of a hit is cached under a prefix of the request",
    part="coordinator",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.HIT_BLOCKS,),
)
