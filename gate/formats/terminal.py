"""The result of the gate on a terminal: the verdict in the first line, then the parts of the
answer, what was run, and the verdict again."""

import sys
from collections.abc import Iterator
from typing import TextIO

from kvproof.gate.formats import sentences as words
from kvproof.gate.formats.sections import REPLAY, RUN, Section, rows, sections
from kvproof.reports.gate_output import Gate, GateFinding
from kvproof.reports.screen import WIDTH, ScreenLine, folds, plain
from kvproof.reports.screen import show as print_lines

EVENTS_FIRST, EVENTS_LAST = 3, 8
"""The events that are printed of a run that is longer than both and one line more."""

IN_FULL = 5
"""The number of findings of one kind that are printed with their runs."""

LINES_MAX = 6
"""The number of lines of one part that are printed."""

IN = 16
"""The column in which the text beside a label begins."""

COLOURS = {"VIOLATED": "red", "UNKNOWN": "yellow", "COSTS": "yellow"}


def show(gate: Gate, file: TextIO | None = None) -> None:
    """Print the result: on a terminal in colour and in its width, elsewhere in whole lines."""
    file = sys.stdout if file is None else file
    whole = not folds(file)
    print_lines(file, (line._replace(hang=0) if whole else line for line in lines(gate)))


def text(gate: Gate, width: int = WIDTH) -> str:
    """Return the result as text of `width` columns, without colour."""
    return plain(lines(gate), width)


def lines(gate: Gate) -> Iterator[ScreenLine]:
    """All lines, not folded."""
    headline = ScreenLine(words.headline(gate), f"bold {COLOURS.get(gate.verdict, 'green')}")
    yield headline
    # No line begins with a text from outside: in some CI systems it would be a command.
    yield from (ScreenLine(f"  | {line}", hang=6) for line in words.more_reason(gate))
    for section in sections(gate):
        yield ScreenLine()
        about = f": {section.about}" * bool(section.about)
        yield ScreenLine(section.name.upper() + about, "bold")
        yield from _section(gate, section)
    yield ScreenLine()
    yield from (_row(label, text, margin="") for label, text in words.facts(gate))
    if found := words.of_kind(gate, "introduced"):
        # The verdict and the gravest finding once more: a small screen still shows them.
        yield ScreenLine()
        yield headline
        again = ("found", "where", REPLAY)
        told = rows(gate, found[0], here=True)
        yield from (_row(label, text) for label, text in told if label in again)


def _section(gate: Gate, section: Section) -> Iterator[ScreenLine]:
    yield from (ScreenLine(f"  {line}", hang=4) for line in section.lines[:LINES_MAX])
    if more := section.lines[LINES_MAX:]:
        yield ScreenLine(f"  ... and {len(more):,} more (--json lists all)")
    for number, each in enumerate(section.findings, 1):
        if 1 < number <= IN_FULL + 1:
            yield ScreenLine()
        first, *rest = _in_full(gate, each) if number <= IN_FULL else _in_short(gate, each)
        yield first._replace(text=f"{number}. {first.text.lstrip()}", style="red")
        yield from rest


def _in_full(gate: Gate, finding: GateFinding) -> Iterator[ScreenLine]:
    """One finding, with the shortest run that shows it."""
    for label, what in rows(gate, finding, here=True):
        yield _row(label, what)
        if label == RUN:
            yield from _events(finding)


def _in_short(gate: Gate, finding: GateFinding) -> Iterator[ScreenLine]:
    told = dict(rows(gate, finding, here=True))
    yield _row("must be true", f"{words.must_be_true(finding)} ({words.plain(finding.severity)})")
    if REPLAY in told:
        yield _row(REPLAY, told[REPLAY])


def _events(finding: GateFinding) -> Iterator[ScreenLine]:
    shown = words.numbered(finding.events)
    more = len(shown) - EVENTS_FIRST - EVENTS_LAST
    if more > 1:
        shown[EVENTS_FIRST:-EVENTS_LAST] = [f"      ... {more} more events (the trace has all)"]
    yield from (ScreenLine(f"    {line}", hang=13) for line in shown)


def _row(label: str, text: str, *, margin: str = "   ") -> ScreenLine:
    # A command is not folded, so that it can be copied.
    hang = 0 if label == REPLAY else IN
    return ScreenLine(f"{margin}{label:{IN - len(margin)}}{text}", hang=hang)
