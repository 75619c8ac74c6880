"""This module says which changes of a trace concern its finding, and where the trace went wrong
before its last event. In a trace of real vLLM that is often the cause of what breaks at the end: a
known finding does not end a run."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS, severity_of
from kvproof.model.config import Cluster
from kvproof.model.config.sides import giver, taker, transfer_names
from kvproof.model.finding import Finding
from kvproof.model.state import NULL, Engine, State
from kvproof.model.step import Effects, Step
from kvproof.model.traces.restored import restored
from kvproof.model.traces.state_diff import Change, Flat
from kvproof.model.traces.trace import Trace
from kvproof.reports.changes import ChangeEntry, entries

Block: TypeAlias = tuple[str, str]
"""An engine and the number of a block of it."""


class TraceFocus:
    """What the finding of a trace is about: a request, a block, or both, on an engine; the
    transfers of the request; and the blocks of all of these, on both sides. Where it names neither
    a request nor a block, everything is."""

    def __init__(self, trace: Trace, whole: bool) -> None:
        found = trace.finding
        self.engine = found.about.engine if found else ""
        self.request = found.about.request if found else ""
        self.block = str(found.about.block) if found and found.about.block else ""
        self.all = whole or not (self.request or self.block)
        self.blocks: set[Block] = {(self.engine, self.block)} if self.block else set()
        self.transfers: set[str] = set()
        if self.all or not self.request:
            return
        states = list(trace.states())
        for state in states[-2:]:
            self.blocks |= _of_request(state, self.engine, self.request)
        for name, (sender, receiver) in transfers(trace.cluster):
            if (self.engine, self.request) in (sender, receiver):
                self.transfers.add(name)
                for state in states:
                    self.blocks |= _of(state, f"/transfers/{name}/remote", sender[0])
                    self.blocks |= _of(state, f"/transfers/{name}/local", receiver[0])

    @property
    def words(self) -> str:
        """What the finding is about, in words, for a line about what is folded."""
        block = f"block {self.block} of {self.engine}" if self.block else "these blocks"
        return self.request or block

    def entries(self, change: Change, before: Flat, after: Flat) -> list[ChangeEntry]:
        """Return the changes by an event, marked as near or not."""
        found = entries(before, change, after)
        return [entry._replace(near=self._near(entry, before, after)) for entry in found]

    def _near(self, entry: ChangeEntry, before: Flat, after: Flat) -> bool:
        if self.all:
            return True
        if entry.kind == "request":
            held = [_of_request(state, entry.engine, entry.name) for state in (before, after)]
            return entry.name == self.request or bool(self.blocks & (held[0] ^ held[1]))
        if entry.kind == "block":
            return (entry.engine, entry.name) in self.blocks
        return entry.kind == "transfer" and entry.name in {self.request, *self.transfers}


def _of_request(state: Flat, engine: str, request: str) -> set[Block]:
    """Return the blocks in the tables of a request."""
    return _of(state, f"/engines/{engine}/requests/{request}/tables", engine)


def _of(state: Flat, pointer: str, engine: str) -> set[Block]:
    """Return the blocks in the lists at a pointer, which are blocks of this engine."""
    lists = state.get(pointer) or ()
    return {(engine, str(block)) for group in lists for block in group if block != NULL}


def transfers(cluster: Cluster) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Return the transfers that can be, each with the engine and the request of its two sides: the
    sender first."""
    if len(cluster.engines) == 1:
        return
    for name in transfer_names(cluster):
        sides = giver(cluster, name), taker(cluster, name)
        yield name, [(side.engine.name, side.request) for side in sides]


class Sign(NamedTuple):
    """The number of an event, from 1, and what does not hold after it."""

    event: int
    finding: Finding


def first_sign(trace: Trace) -> Sign | None:
    """Find the first event, before the last one, after which an invariant does not hold that is as
    severe as the finding of the trace. The result is None where there is none, or where no states
    were recorded."""
    if trace.finding is None or (severity := severity_of(trace.finding)) is None:
        return None
    grave = [i for i in INVARIANTS.values() if i.severity is not None and i.severity <= severity]
    checks = [each for each in grave if Engine in each.judged or State in each.judged]
    before = None
    for number, (flat, event) in enumerate(zip(trace.states(), trace.events, strict=False)):
        after = restored(flat)
        step = Step(before or after, event, Effects(), after)
        for finding in broken(trace.cluster, step, checks if number else ()):
            return Sign(number, finding)
        before = after
    return None
