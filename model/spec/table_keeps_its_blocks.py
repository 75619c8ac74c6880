"""The worker keeps its own copy of each block table, and is sent only what is new. A block that
changes its place, or comes from nowhere, is another one for the worker than for the scheduler.

A table grows by blocks that a choice of the step says it hit or took, and loses those that a choice
says it freed. In attention groups a block keeps its place until it is freed. Outside a step a table
loses blocks and gains none.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import FinishLoad, Preempt, Schedule
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import Requests, alive, requests
from kvproof.model.spec.guard import Guard
from kvproof.model.spec.taken_blocks_were_free import blocks_of
from kvproof.model.state import NULL, Engine, Table
from kvproof.model.step import Step


def _given(step: Step, engine: Engine, name: str) -> tuple[set[int], set[int], bool]:
    """The blocks that the choices of a step gave a request and took from it, and whether it began
    anew."""
    given, lost, anew = set[int](), set[int](), False
    event = step.event
    if not isinstance(event, Schedule) or event.engine != engine.name:
        return given, lost, anew
    for choice in event.chose or ():
        lost |= set(blocks_of(choice, "freed")) if name in choice else set()
        if choice.request == name:
            anew |= isinstance(choice, Preempt | FinishLoad)
            given |= {*blocks_of(choice, "hit"), *blocks_of(choice, "taken")}
    return given, lost, anew


def _wrong(old: Table, new: Table, given: set[int], lost: set[int], copies: set[int]) -> str:
    """What is wrong with a table, in words; empty where nothing is."""
    foreign = set(new) - set(old) - given - {NULL}
    if foreign:
        return f"blocks {sorted(foreign)} came into it, which no choice gave it"
    gone = set(old) - set(new) - lost - copies - {NULL}
    if gone and (given or lost or len(new) >= len(old)):
        return f"blocks {sorted(gone)} left it, which no choice freed"
    return ""


def _moved(old: Table, new: Table, copies: set[int]) -> str:
    for position, (was, now) in enumerate(zip(old, new, strict=False)):
        if now not in (was, NULL) and was not in copies:
            return f"at position {position} it has block {now} where it had block {was}"
    return ""


def _tables(request: Requests) -> Iterator[tuple[int, Table, Table]]:
    if request.before is not None and request.after is not None and request.after.tables:
        old = request.before.tables or ((),) * len(request.after.tables)
        yield from (
            (i, *pair) for i, pair in enumerate(zip(old, request.after.tables, strict=True))
        )


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each table is what it was, with what the choices gave and without what they freed."""
    in_step = isinstance(step.event, Schedule)
    for engines in alive(step):
        before, after = engines
        if before.requests is after.requests:
            continue
        copies = {c.source for c in step.effects.copies if c.engine == after.name}
        for request in requests(engines):
            given, lost, anew = _given(step, after, request.name)
            for index, old, new in _tables(request):
                freed = lost if in_step else set(old)
                wrong = "" if anew else _wrong(old, new, given, freed, copies)
                if not wrong and not anew and cluster.engine(after.name).groups[index].attention:
                    wrong = _moved(old, new, copies)
                if wrong:
                    yield because(
                        f"the table of {request.name} in group {index} of {after.name} was "
                        f"{list(old)}",
                        f"{wrong}: it is {list(new)}",
                        engine=after.name,
                        request=request.name,
                        group=index,
                    )


GUARD = Guard(
    id="table_keeps_its_blocks",
    name="a block table changes only by the blocks that the step's choices took and freed",
    part="coordinator",
    severity=Severity.WRONG_TOKENS,
    check=check,
)
