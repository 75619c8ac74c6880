"""A hit gives a request the very blocks that are cached under its prefixes. A block that is cached
under another prefix, or not at all, is another prompt's (vllm#53142).

A hit that ends inside a block may take one that is cached under a longer prefix, where attention is
concerned; a state is that of the hit's end and of nothing else.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster, Engine, Group
from kvproof.model.events import Admit, Schedule
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import scheduled
from kvproof.model.spec.guard import Guard
from kvproof.model.state import NULL
from kvproof.model.step import Admission, Step


def _serves(cfg: Engine, group: Group, key: str, position: int, admission: Admission) -> bool:
    """Whether a block cached under this prefix can stand at this position of a table. The tokens
    after the block that its hash covers must be the request's too."""
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
    """Each block that a hit gives is cached under a prefix of the request at its look-up."""
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
                    f"{choice.request} on {engines.after.name} hits {choice.local_hit} tokens, and "
                    f"gets block {block} at position {position} of group {index}",
                    f"it is cached as {' and '.join(map(repr, prefixes)) or 'nothing'}",
                    engine=engines.after.name,
                    request=choice.request,
                    group=index,
                    block=block,
                )


GUARD = Guard(
    id="hit_blocks_are_cached",
    name="a hit gives a request blocks that are cached under its own prefixes",
    part="coordinator",
    severity=Severity.WRONG_TOKENS,
    check=check,
)
