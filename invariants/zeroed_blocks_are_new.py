"""A model with Mamba layers needs new attention blocks without old values in them, so the worker
erases new blocks before it computes a step. It also erased blocks that an asynchronous load was
filling at that time (vllm#48481). A block that is erased after its first step loses its KV."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import filled_by
from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Admit, Compute, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LOADING, NULL, Engine
from kvproof.model.step import Step


def taken(event: Schedule) -> set[int]:
    """All blocks that a step took from the free queue."""
    choices = (c for c in event.chose or () if isinstance(c, Admit | Compute))
    return {block for choice in choices for blocks in choice.taken for block in blocks}


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """No zeroed block is filled by a load beside the steps, holds computed tokens, or stays
    cached."""
    event, zeroed = step.event, step.effects.zeroed
    if not isinstance(event, Schedule) or not zeroed:
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    new, filled = taken(event), filled_by(cluster, step.after, event.engine)
    for block in sorted(set(zeroed)):
        why = reason("is_null", "it is the null block") if block == NULL else None
        if block in filled:
            why = why or reason(
                "load_fills", "a load of {taker} fills it at the same time", taker=filled[block]
            )
        why = why or _in_use(cluster, before, after, block)
        key = after.blocks[block].key
        if why is None and key is not None and key == before.blocks[block].key and block not in new:
            why = reason(
                "is_cached",
                "it is cached as prefix {key:quoted} of group {of}",
                key=key[1],
                of=key[0],
            )
        if why is not None:
            yield because(
                reason("is_erased", "the worker of {engine} erases block {block} in this step"),
                why,
                engine=after.name,
                block=block,
            )


def _in_use(cluster: Cluster, before: Engine, after: Engine, block: int) -> Reason | None:
    """Why a block may not be erased; None if it may."""
    for request in after.requests:
        earlier = before.find(request.id)
        for index, table in enumerate(request.tables):
            if block not in table:
                continue
            place, size = table.index(block), cluster.engine(after.name).groups[index].block_size
            held = earlier.tables[index] if earlier is not None and earlier.tables else ()
            if earlier is None or block not in held or earlier.status in (LOADING, FAILED):
                continue
            if place * size < min(earlier.computed, request.computed):
                return reason(
                    "holds_tokens", "it holds tokens that {holder} has computed", holder=request.id
                )
    return None


INVARIANT = Invariant(
    id="zeroed_blocks_are_new",
    name="the worker erases only new blocks that no load fills at the same time",
    origin="vllm#48481",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.ERASED,),
    killed_by="blocks_of_loads_are_zeroed",
)
