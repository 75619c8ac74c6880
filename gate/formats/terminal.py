"""The result of the gate on a terminal: the verdict in the first line, then what is introduced,
mended, not comparable, costs and lost, what was run, and the verdict again."""

import sys
from collections.abc import Iterator
from typing import TextIO

from kvproof.gate.formats import sentences as words
from kvproof.reports.output.gate import Gate, GateFinding
from kvproof.reports.screen import WIDTH, ScreenLine, folds, plain
from kvproof.reports.screen import show as print_lines

EVENTS_FIRST, EVENTS_LAST = 3, 8
"""The events that are printed of a run that is longer than both and one line more."""

IN_FULL = 5
"""The number of introduced findings that are printed with their runs."""

NOT_RUN_MAX = 6

FUNCTIONS_MAX = 6

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
    yield ScreenLine(words.headline(gate), f"bold {COLOURS.get(gate.verdict, 'green')}")
    # No line begins with a text from outside: in some CI systems it would be a command.
    first = 1 if gate.verdict in ("UNKNOWN", "UNCHANGED") else 0
    yield from (ScreenLine(f"  | {line}", hang=6) for line in words.reason(gate)[first:])
    yield from _introduced(gate)
    yield from _others(gate)
    yield from _costs(gate)
    if gate.lost:
        yield from _title("LOST: kvproof drives base by these names, and head does not have them")
        yield from (ScreenLine(f"  {words.lost(each)}") for each in gate.lost)
    yield from _functions(gate)
    if gate.not_run:
        yield from _title("NOT RUN")
        yield from (ScreenLine(f"  {words.plain(each)}") for each in gate.not_run[:NOT_RUN_MAX])
        if more := gate.not_run[NOT_RUN_MAX:]:
            yield ScreenLine(f"  ... and {len(more)} more (--json lists all)")
    yield ScreenLine()
    yield from _about(gate)
    yield from _again(gate)


def _again(gate: Gate) -> Iterator[ScreenLine]:
    """The verdict and the gravest introduced finding once more: a small screen still shows them."""
    found = words.of_kind(gate, "introduced")
    if not found:
        return
    yield ScreenLine()
    yield ScreenLine(words.headline(gate), f"bold {COLOURS.get(gate.verdict, 'green')}")
    yield _row("found", words.plain(found[0].sentence))
    if gate.base is not None:
        yield _row("where", words.where(found[0].places))
    if (command := words.replay(gate, found[0], here=True)) is not None:
        yield _row("replay it", command, hang=0)


def about(gate: Gate, finding: GateFinding, *, here: bool = False) -> Iterator[ScreenLine]:
    """One finding, with the shortest run that shows it, for a reader on this machine (`here`) or on
    another."""
    yield _row("must be true", words.must_be_true(finding))
    yield _row("found", words.plain(finding.sentence))
    yield _row("how grave", words.grave(finding))
    if finding.also:
        yield _row("and with it", words.named(finding.also))
    yield _row("check", words.check(finding))
    if finding.excuses:
        yield _row("excuse", f"{words.named(finding.excuses)}; base needs no such excuse here")
    if gate.base is not None:
        yield _row("where", words.where(finding.places))
    if finding.events:
        yield _row("shortest run", words.run_of(finding))
        yield from _events(finding)
    if finding.reproducer is not None:
        yield _row("reproducer", words.result(finding.reproducer))
    if (command := words.replay(gate, finding, here=here)) is not None:
        yield _row("replay it", command, hang=0)


def _introduced(gate: Gate) -> Iterator[ScreenLine]:
    found = words.of_kind(gate, "introduced")
    if not found:
        return
    yield from _title("INTRODUCED: on head, and not on base")
    for number, each in enumerate(found[:IN_FULL], 1):
        if number > 1:
            yield ScreenLine()
        yield from _numbered(number, [*about(gate, each, here=True)])
    if len(found) > IN_FULL:
        yield ScreenLine()
    for number, each in enumerate(found[IN_FULL:], IN_FULL + 1):
        text = f"{words.must_be_true(each)} ({words.plain(each.severity)})"
        yield from _numbered(number, [_row("must be true", text)])
        if (command := words.replay(gate, each, here=True)) is not None:
            yield _row("replay it", command, hang=0)


def _numbered(number: int, rows: list[ScreenLine]) -> Iterator[ScreenLine]:
    """Rows, the first of which begins with a number."""
    first = rows[0]
    yield first._replace(text=f"{number}. {first.text.lstrip()}", style="red")
    yield from rows[1:]


def _events(finding: GateFinding) -> Iterator[ScreenLine]:
    shown = words.numbered(finding.events)
    more = len(shown) - EVENTS_FIRST - EVENTS_LAST
    if more > 1:
        shown[EVENTS_FIRST:-EVENTS_LAST] = [f"      ... {more} more events (the trace has all)"]
    yield from (ScreenLine(f"    {line}", hang=13) for line in shown)


def _others(gate: Gate) -> Iterator[ScreenLine]:
    mended = [each for each in gate.findings if each.kind == "mended"]
    if mended:
        yield from _title("MENDED: on base; head takes the same run to its end without it")
        yield ScreenLine(f"  {words.names(mended)}", hang=2)
    unknown = [each for each in gate.findings if each.kind == "not comparable"]
    if unknown:
        yield from _title("NOT COMPARABLE: on base; head does not take the run that shows it")
    yield from (ScreenLine(f"  {words.parting(each)}", hang=4) for each in unknown[:NOT_RUN_MAX])
    if len(unknown) > NOT_RUN_MAX:
        yield ScreenLine(f"  ... and {len(unknown) - NOT_RUN_MAX} more (--json lists all)")


def _costs(gate: Gate) -> Iterator[ScreenLine]:
    found = words.of_kind(gate, "costs")
    if gate.costs or found:
        yield from _title("COSTS: head does the same with more, and a good scheduler may do so")
    yield from (ScreenLine(f"  {words.cost(each)}", hang=4) for each in gate.costs)
    for number, each in enumerate(found[:IN_FULL], 1):
        yield from _numbered(number, [*about(gate, each, here=True)])


def _about(gate: Gate) -> Iterator[ScreenLine]:
    """What was compared, and how."""
    for label, text in words.trees(gate):
        yield _row(label, text, margin="")
    for label, text in words.about(gate):
        yield _row(label, text, margin="")


def _functions(gate: Gate) -> Iterator[ScreenLine]:
    """The table of what the pull request changes, in two or three lines each."""
    if not gate.functions:
        return
    yield from _title(
        "CHANGED FUNCTIONS: what each belongs to, and how many of "
        f"{words.counted(gate.watched, 'watched run')} executed what is changed in it"
    )
    for each in gate.functions[:FUNCTIONS_MAX]:
        yield ScreenLine(f"  {words.plain(each.function)}", hang=4)
        yield ScreenLine(f"    {words.driven(each):>5}  {words.belongs(each)}", hang=11)
        if executed := words.executed(each):
            yield ScreenLine(f"           {executed}", hang=11)
    if more := gate.functions[FUNCTIONS_MAX:]:
        yield ScreenLine(f"  ... and {len(more):,} more (--json lists all)")


def _row(label: str, text: str, *, margin: str = "   ", hang: int = IN) -> ScreenLine:
    return ScreenLine(f"{margin}{label:{IN - len(margin)}}{text}", hang=hang)


def _title(title: str) -> Iterator[ScreenLine]:
    yield ScreenLine()
    yield ScreenLine(title, "bold")
