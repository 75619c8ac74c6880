"""If vLLM drops a cache entry although the block still holds the content, later prompts miss a
possible prefix hit (vllm#44409: the hit rate fell to 0 %).

The spec permits the loss of an entry when its block is allocated again, when an `Evict` event names
its block, at a reset, after a failed load, when the tokens of the block are not computed after all,
and when another entry replaces it: a longer prefix in the same block, or a copy of the block.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Complete,
    Evict,
    Preempt,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
)
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import Engines, alive
from kvproof.model.spec.guard import Guard
from kvproof.model.spec.taken_blocks_were_free import blocks_of
from kvproof.model.state import Key
from kvproof.model.step import Step


def _given_up(step: Step, engines: Engines) -> set[int]:
    """Blocks whose entries the event may drop."""
    event, before = step.event, engines.before
    if isinstance(event, Evict):
        return {event.block}
    if isinstance(event, ResetPrefixCache | ResetRunning):
        return set(range(len(before.blocks)))
    if isinstance(event, Complete) and event.failed:
        return {b for table in before.request(event.failed).tables for b in table}
    blocks = set[int]()
    for choice in event.chose or () if isinstance(event, Schedule) else ():
        blocks |= set(blocks_of(choice, "taken"))
        if isinstance(choice, Preempt):
            blocks |= set(blocks_of(choice, "freed"))
    return blocks


def _replaced(step: Step, engines: Engines, key: Key, block: int) -> bool:
    """Whether another entry replaces this entry. The target of a copy may have had the same entry
    before."""
    group, prefix = key
    longer = any(
        k[0] == group and k[1].startswith(prefix) for k in engines.after.blocks[block].keys
    )
    elsewhere = set(engines.after.blocks_for(key)) - set(engines.before.blocks_for(key))
    copied = {c.target for c in step.effects.copies if c[:2] == (engines.after.name, block)}
    return longer or bool(elsewhere) or bool(copied & set(engines.after.blocks_for(key)))


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """No entry is lost without one of the permitted reasons."""
    for engines in alive(step):
        before, after = engines
        if before.cached == after.cached:
            continue
        left = {(key, block) for key, blocks in after.cached for block in blocks}
        given_up = _given_up(step, engines)
        for key, blocks in before.cached:
            for block in blocks:
                if (
                    (key, block) in left
                    or block in given_up
                    or _replaced(step, engines, key, block)
                ):
                    continue
                yield because(
                    reason(
                        "is_cached",
                        "block {block} of {engine} is cached as prefix {key:quoted} "
                        "of group {group}, and {event} neither allocates nor evicts "
                        "it",
                        key=key[1],
                        event=type(step.event).__name__,
                    ),
                    reason("entry_is_lost", "the cache has lost this entry"),
                    engine=after.name,
                    group=key[0],
                    block=block,
                )


GUARD = Guard(
    id="entry_is_lost_with_its_block",
    name="a cache entry is lost only if its block is allocated, evicted, reset or replaced",
    part="block pool",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.LOST_ENTRIES,),
)
