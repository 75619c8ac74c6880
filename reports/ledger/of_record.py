"""This module makes the data of the block ledger from a record, or from the records of P and D on
one page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kvproof.model.finding import Finding
from kvproof.model.records.lines import RecordedEngine
from kvproof.model.records.record import Happened, Record
from kvproof.model.records.words import described
from kvproof.model.traces.state_diff import Flat, diff, escaped
from kvproof.reports.ledger.data import (
    Ledger,
    ShownEngine,
    ShownFinding,
    ShownStep,
    ShownTransfer,
    TransferSide,
    shown_finding,
)
from kvproof.reports.ledger.record_states import RecordFocus, RecordStates
from kvproof.reports.record import headline
from kvproof.reports.terminal import shell_word
from kvproof.reports.trace.engines import KINDS
from kvproof.reports.trace.functions import recorded_functions
from kvproof.strategies.joined import Pairs

FINDINGS_MAX = 8
"""The largest number of invariants that are shown, each with its first finding."""

WRITTEN = "the record is written: what the engine has now"

UNKNOWN = (
    "A record has no tokens, no cache keys and no content of blocks, and reference counts only at "
    "its end. What is not known is shown as a question mark."
)

LATE = (
    "The record does not begin where its engine began. The blocks of a request that was there "
    "before are not known until it gets others from its first token on."
)

NO_CLOCK = "The clocks of the two records cannot be compared: the events of P come first."


def of_record(record: Record, path: Path | None = None) -> Ledger:
    """Return the data of a record. `path` is its file, which is named in the command that replays
    it."""
    states = RecordStates(record, record.header.engine.name)
    return _ledger(
        _Records((states,)),
        source="record",
        title=headline(record),
        found=[(step, each) for step, (_, found) in enumerate(record.events, 1) for each in found],
        replay=f"Replay it: kvproof replay {shell_word(path)}" if path else "",
    )


def of_join(
    prefill: Record, decode: Record, findings: Sequence[Finding], pairs: Mapping[str, Pairs]
) -> Ledger:
    """Return the data of the records of P and D, with what both together show. `pairs` has the
    paired blocks of each request of D, as far as they are known."""
    both = _Records((RecordStates(prefill, "P"), RecordStates(decode, "D")), pairs)
    return _ledger(
        both,
        source="two records",
        title=f"P: {headline(prefill)}. D: {headline(decode)}",
        found=[(both.loads(each.about.request), each) for each in findings],
    )


class _Records:
    """The events of one record, or of two in the order of their times."""

    def __init__(self, each: Sequence[RecordStates], pairs: Mapping[str, Pairs] | None = None):
        self.each = each
        self.pairs = pairs or {}
        clocks = {states.record.header.clock for states in each}
        self.comparable = len(each) == 1 or (len(clocks) == 1 and "" not in clocks)
        self.order = [(states, happened) for states in each for happened in states.record.events]
        if self.comparable:
            self.order.sort(key=lambda item: item[1].event.at_s)

    def loads(self, request: str) -> int:
        """Return the number of the step in which D asks for the blocks of a request; the last one
        if it does not."""
        decode = self.each[-1]
        for step, (states, (event, _)) in enumerate(self.order, 1):
            if states is decode and request in {load.request for load in event.loads}:
                return step
        return len(self.order)

    def steps(
        self, about: RecordFocus, found: Mapping[int, tuple[str, ...]]
    ) -> Iterator[ShownStep]:
        """Return the steps, and a last one with what the engines had when the records were
        written."""
        after = {id(states): states.after() for states in self.each}
        before = self.flat()
        for step, (states, happened) in enumerate(self.order, 1):
            next(after[id(states)])
            yield self._step(states, happened, about, found.get(step, ()), (before, self.flat()))
            before = self.flat()
        for states in self.each:
            states.end()
        change = diff(before, self.flat())
        yield ShownStep(
            label="end",
            text=WRITTEN,
            words=WRITTEN,
            functions=(),
            changed=change.changed,
            removed=change.removed,
        )

    def _step(
        self,
        states: RecordStates,
        happened: Happened,
        about: RecordFocus,
        found: tuple[str, ...],
        flats: tuple[Flat, Flat],
    ) -> ShownStep:
        event, several = happened.event, len(self.each) > 1
        own = tuple(finding.invariant for finding in happened.findings)
        change = diff(*flats)
        text = f"{states.name}: {described(event)}" if several else described(event)
        return ShownStep(
            label=f"{states.name}{event.step}" if several else str(event.step),
            text=text,
            words=text,
            functions=tuple(recorded_functions(event)),
            near=bool(own or found) or about.near(event, states.freed),
            found=tuple(dict.fromkeys((*found, *own))),
            changed=change.changed,
            removed=change.removed,
        )

    def flat(self) -> Flat:
        """Return what is known of all engines. A load has the pairs, and takes the place of the
        offer that it reads."""
        flat = {p: v for states in self.each for p, v in states.flat.items()}
        for name, sides in self.transfers().items():
            base = f"/transfers/{escaped(name)}"
            if f"{base}/local" not in flat:
                continue
            if sides.receiver.request in self.pairs:
                pairs = self.pairs[sides.receiver.request]
                flat[f"{base}/pairs"] = [[list(side) for side in pair] for pair in pairs]
            offer = f"/transfers/{escaped(f'{sides.sender.request} from {sides.sender.engine}')}/"
            flat = {p: v for p, v in flat.items() if not p.startswith(offer)}
        return flat

    def transfers(self) -> dict[str, ShownTransfer]:
        """Return the transfers that have begun. What an engine loads comes from the other one."""
        found: dict[str, ShownTransfer] = {}
        for states in self.each:
            other = next((each.name for each in self.each if each is not states), "")
            for name, sides in states.transfers.items():
                loads = sides.receiver.engine == states.name
                sender = TransferSide(other, sides.sender.request) if loads else sides.sender
                found[name] = ShownTransfer(sender, sides.receiver)
        return found


def _ledger(
    records: _Records,
    *,
    source: str,
    title: str,
    found: Sequence[tuple[int, Finding]],
    replay: str = "",
) -> Ledger:
    initial = records.flat()
    at: dict[int, tuple[str, ...]] = {}
    for step, finding in found:
        at[step] = (*at.get(step, ()), finding.invariant)
    steps = tuple(records.steps(RecordFocus.of([finding for _, finding in found]), at))
    first = _first_of_each(found)[:FINDINGS_MAX]
    return Ledger(
        source=source,
        title=title,
        findings=first,
        further=len(found) - len(first),
        replay=replay,
        notes=tuple(_notes(records)),
        engines=tuple(_engine(each.record.header.engine, each.name) for each in records.each),
        transfers=records.transfers(),
        initial=initial,
        steps=steps,
    )


def _first_of_each(found: Iterable[tuple[int, Finding]]) -> tuple[ShownFinding, ...]:
    """Return the first finding of each invariant."""
    first: dict[str, ShownFinding] = {}
    for step, finding in found:
        if finding.invariant not in first:
            first[finding.invariant] = shown_finding(finding, step)
    return tuple(first.values())


def _notes(records: _Records) -> Iterator[str]:
    """Say what the page cannot show."""
    yield UNKNOWN
    headers = [each.record.header for each in records.each]
    if any(header.dropped or not header.from_start for header in headers):
        yield LATE
    if not records.comparable:
        yield NO_CLOCK
    for header in headers:
        if header.stopped:
            yield f"The engine was not watched any further: {header.stopped}."


def _engine(engine: RecordedEngine, name: str) -> ShownEngine:
    groups = engine.groups
    return ShownEngine(
        name=name,
        blocks=engine.num_blocks,
        groups=tuple(f"{KINDS[each.kind]}, {each.block_size} tokens a block" for each in groups),
        sizes=tuple(each.block_size for each in groups),
        kinds=tuple(each.kind for each in groups),
    )
