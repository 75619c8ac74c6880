"""This module prints a record as text for a terminal: the findings, the last events, and the blocks
of the requests that they concern."""

from collections.abc import Iterator
from typing import TextIO

from kvproof.model.finding import Finding
from kvproof.model.records.lines import HeldRequest, RecordedEvent
from kvproof.model.records.record import Record
from kvproof.model.records.words import described
from kvproof.reports.changes import value
from kvproof.reports.screen import ScreenLine, columns, table
from kvproof.reports.screen import show as print_lines
from kvproof.reports.shared_tokens import lines, rows_of_record
from kvproof.reports.terminal import finding_lines

EVENTS_MAX = 20
"""The number of events that are shown: the last ones."""

INVARIANTS_MAX = 8
REQUESTS_MAX = 12
"""The largest numbers of invariants, each with a finding, and of requests that are shown."""


def show(file: TextIO, record: Record, *, whole: bool = False) -> None:
    """Print the record in the width of the file. With `whole`, all events are shown."""
    print_lines(file, _lines(record, columns(), whole=whole))


def _lines(record: Record, width: int, *, whole: bool) -> Iterator[ScreenLine]:
    yield from _findings(record)
    yield ScreenLine()
    yield ScreenLine(_headline(record), "bold")
    if record.header.stopped:
        yield ScreenLine(f"The engine was not watched any further: {record.header.stopped}.")
    yield ScreenLine()
    yield from _events(record, whole=whole)
    yield ScreenLine()
    for text in lines(rows_of_record(record)):
        yield ScreenLine(text)
        yield ScreenLine()
    yield from _held(record, width)
    yield from _blocks(record, width)


def _headline(record: Record) -> str:
    """Say what a record is of: its events, the engine and the process."""
    header = record.header
    since = "from the start of" if header.from_start and not header.dropped else "of"
    connector = f", {header.connector.name}" if header.connector else ""
    groups = " | ".join(f"{each.kind} {each.block_size}" for each in header.engine.groups)
    return (
        f"{len(record.events)} events {since} engine {header.engine.name} (vLLM "
        f"{header.versions.vllm}, {header.engine.num_blocks} blocks: {groups}{connector}), "
        f"process {header.process}, written {header.written} ({header.why})"
    )


def _findings(record: Record) -> Iterator[ScreenLine]:
    """Return the lines of the first finding of each invariant."""
    found = [(each.event, finding) for each in record.events for finding in each.findings]
    first: dict[str, tuple[RecordedEvent, Finding]] = {}
    for event, finding in found:
        first.setdefault(finding.invariant, (event, finding))
    shown = list(first.values())[:INVARIANTS_MAX]
    for event, finding in shown:
        yield from finding_lines(finding)
        owner = "KVCacheManager" if event.event == "evict_blocks" else "Scheduler"
        yield ScreenLine(f"Where: event {event.step}, {owner}.{event.event}", hang=7)
    if len(found) > len(shown):
        yield ScreenLine(f"and {len(found) - len(shown)} more findings")
    if not found:
        yield ScreenLine("No invariant is broken in this record.", "bold")


def _events(record: Record, *, whole: bool) -> Iterator[ScreenLine]:
    last = record.events if whole else record.events[-EVENTS_MAX:]
    if len(last) < len(record.events):
        yield ScreenLine(f"The last {len(last)} events (--all shows all):")
    for event, findings in last:
        number = f"{'>' if findings else ' '}{event.step:4}  "
        style = "bold red" if findings else ""
        yield ScreenLine(number + described(event), style, len(number) + 4)
        for line in _changes(event):
            yield ScreenLine(" " * 9 + line, "dim", 11)


def _changes(event: RecordedEvent) -> Iterator[str]:
    for change in event.tables:
        blocks = value(list(change.blocks)) if change.blocks else "no blocks"
        where = f" from column {change.at} on" if change.at else ""
        yield f"{change.request} has in group {change.group}{where}: {blocks}"


def _concerned(record: Record) -> tuple[HeldRequest, ...]:
    """Return the requests that the findings are about, or that hold a block that they are about;
    without findings, all."""
    abouts = [finding.about for finding in record.findings]
    if not abouts:
        return record.state.requests
    names = {about.request for about in abouts}
    blocks = {about.block for about in abouts}
    return tuple(
        each
        for each in record.state.requests
        if each.request in names or any(blocks.intersection(table) for table in each.tables)
    )


def _held(record: Record, width: int) -> Iterator[ScreenLine]:
    requests = _concerned(record)
    if not requests:
        yield ScreenLine("No request that this is about has blocks at the end.")
        return
    rows = tuple(
        (each.request if not group else "", _progress(each) if not group else "", str(group), held)
        for each in requests[:REQUESTS_MAX]
        for group, held in enumerate(value(list(table)) for table in each.tables)
    )
    yield ScreenLine(f"Requests at the end ({record.state.free_blocks} blocks are free)")
    yield from table(("request", "computed", "group", "blocks"), rows, width)
    if len(requests) > REQUESTS_MAX:
        yield ScreenLine(f"and {len(requests) - REQUESTS_MAX} more requests")


def _progress(request: HeldRequest) -> str:
    known = request.prompt_tokens + request.output_tokens
    return f"{request.computed_tokens} of {known} tokens ({request.status})"


def _blocks(record: Record, width: int) -> Iterator[ScreenLine]:
    shown = _about_blocks(record.findings)
    rows = []
    for block in record.state.blocks:
        if block.block in shown:
            holders = (
                each.request
                for each in record.state.requests
                if any(block.block in table for table in each.tables)
            )
            state = "free" if block.free else " ".join(holders) or "nobody"
            rows.append((str(block.block), str(block.refs), state, "yes" if block.cached else ""))
    if rows:
        yield ScreenLine()
        yield ScreenLine("Blocks that the findings are about, at the end")
        yield from table(("block", "refs", "held by", "cached"), rows, width)


def _about_blocks(findings: tuple[Finding, ...]) -> set[int]:
    return {each.about.block for each in findings if each.about.block is not None}
