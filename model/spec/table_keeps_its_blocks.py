"""The worker has its own copy of each block table and receives only the new blocks. If a block
changes its position, or a block appears without a choice, the scheduler and the worker use
different blocks.

A table grows by blocks that a choice of the step hit or took. It loses blocks that a choice freed.
In attention groups a block keeps its position until it is freed. Outside a step, a table only loses
blocks.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import FinishLoad, Preempt, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import Requests, alive, requests
from kvproof.model.spec.guard import Guard
from kvproof.model.spec.taken_blocks_were_free import blocks_of
from kvproof.model.state import NULL, Engine, Table
from kvproof.model.step import Step


def _given(step: Step, engine: Engine, name: str) -> tuple[set[int], set[int], bool]:
    """The blocks that the choices of a step gave to a request, the blocks that they freed, and
    whether the request started again."""
    given, lost, restarted = set[int](), set[int](), False
    event = step.event
    if not isinstance(event, Schedule) or event.engine != engine.name:
        return given, lost, restarted
    for choice in event.chose or ():
        if name in (choice.request, getattr(choice, "needy", "")):
            lost |= set(blocks_of(choice, "freed"))
        if choice.request == name:
            restarted |= isinstance(choice, Preempt | FinishLoad)
            given |= {*blocks_of(choice, "hit"), *blocks_of(choice, "taken")}
    return given, lost, restarted


def _wrong(
    old: Table, new: Table, given: set[int], lost: set[int], copies: set[int]
) -> Reason | None:
    """What is wrong with a table; None if nothing is wrong."""
    foreign = set(new) - set(old) - given - {NULL}
    if foreign:
        return reason("not_given", "no choice gave it blocks {foreign}", foreign=sorted(foreign))
    gone = set(old) - set(new) - lost - copies - {NULL}
    if gone and (given or lost or len(new) >= len(old)):
        return reason("not_freed", "no choice freed its blocks {gone}", gone=sorted(gone))
    return None


def _moved(old: Table, new: Table, copies: set[int]) -> Reason | None:
    for position, (was, now) in enumerate(zip(old, new, strict=False)):
        if now not in (was, NULL) and was not in copies:
            return reason(
                "moved",
                "position {position} changed from block {was} to block {now}",
                position=position,
                was=was,
                now=now,
            )
    return None


def _tables(request: Requests) -> Iterator[tuple[int, Table, Table]]:
    if request.before is not None and request.after is not None and request.after.tables:
        old = request.before.tables or ((),) * len(request.after.tables)
        yield from (
            (i, *pair) for i, pair in enumerate(zip(old, request.after.tables, strict=True))
        )


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each table changes only by the blocks that the choices gave and freed."""
    in_step = isinstance(step.event, Schedule)
    for engines in alive(step):
        before, after = engines
        if before.requests is after.requests:
            continue
        copies = {c.source for c in step.effects.copies if c.engine == after.name}
        for request in requests(engines):
            if request.before and request.after and request.before.tables == request.after.tables:
                continue
            given, lost, restarted = _given(step, after, request.name)
            for index, old, new in _tables(request):
                freed = lost if in_step else set(old)
                wrong = None if restarted else _wrong(old, new, given, freed, copies)
                if (
                    wrong is None
                    and not restarted
                    and cluster.engine(after.name).groups[index].attention
                ):
                    wrong = _moved(old, new, copies)
                if wrong is not None:
                    yield because(
                        reason(
                            "table_was",
                            "the block table of {request} in group {group} of {engine} was {old}",
                            old=old,
                        ),
                        reason("table_is", "{wrong}, and it is now {new}", wrong=wrong, new=new),
                        engine=after.name,
                        request=request.name,
                        group=index,
                    )


GUARD = Guard(
    id="table_keeps_its_blocks",
    name="a block table changes only by the blocks that the choices of the step took and freed",
    part="coordinator",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.CHOSEN_BLOCKS,),
)
