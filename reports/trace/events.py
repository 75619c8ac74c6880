"""This module prints the events of a trace with their changes. What does not concern the finding is
folded: further requests and blocks into a few words, and events that change nothing of it into
their names."""

from dataclasses import dataclass, field
from itertools import islice

from kvproof.model.events import Event, describe
from kvproof.model.traces.state_diff import Flat
from kvproof.model.traces.trace import Trace
from kvproof.reports.changes import ChangeEntry
from kvproof.reports.screen import ScreenLine
from kvproof.reports.trace.about import Sign, TraceFocus

REPEATS = "      --- from here on the events repeat for ever ---"


@dataclass
class Printed:
    """The lines of the events. `states` are those before and after the last event, if there are
    states. `left_out` says of which changes some are not among the lines; it is empty if all
    are."""

    lines: list[ScreenLine] = field(default_factory=list)
    states: list[Flat] = field(default_factory=list)
    left_out: str = ""


def events(
    trace: Trace,
    *,
    whole: bool = False,
    loop: int | None = None,
    sign: Sign | None = None,
) -> Printed:
    """Return the events of a trace: all of them, and all changes of each, if it is to be `whole`.

    `loop` is the number of the first event of those that repeat without end: equal ones that change
    nothing are counted, the others are never folded. `sign` is where the trace went wrong first;
    this event is not folded either.
    """
    about = TraceFocus(trace, whole)
    printed = Printed()
    states, same = trace.states(), 0
    printed.states = [*islice(states, 1)]
    for number, event in enumerate(trace.events, 1):
        changed: list[ChangeEntry] | None = None
        if trace.changes is not None:
            printed.states = [printed.states[-1], next(states)]
            changed = about.entries(trace.changes[number - 1], *printed.states)
        last = number == len(trace.events) and trace.finding is not None
        if number == loop:
            printed.lines.append(ScreenLine(REPEATS, "bold", 10))
        again = loop is not None and number > loop and event == trace.events[number - 2]
        if again and not changed and not whole and not last:
            same += 1
            continue
        if same:
            times = "once" if same == 1 else f"{same} times"
            printed.lines.append(ScreenLine(f"      --- the same {times} more ---", "dim", 10))
            same = 0
        unread = changed is not None and not any(entry.near for entry in changed)
        repeats = loop is not None and number >= loop
        begins = sign is not None and number == sign.event
        if unread and not whole and not last and not repeats and not begins:
            printed.lines.append(ScreenLine(f"{number:4}  {describe(event)}", "dim", 10))
            left_out = True
        else:
            left_out = _event(event, printed, number, changed, last)
        if left_out:
            printed.left_out = about.words
        if sign is not None and begins:
            printed.lines.append(ScreenLine(_went_wrong(sign), "bold", 10))
    return printed


def _event(
    event: Event, printed: Printed, number: int, changed: list[ChangeEntry] | None, last: bool
) -> bool:
    """Add the lines of an event. Return whether they leave out changes."""
    mark = f"{'>' if last else ' '}{number:3}  "
    printed.lines.append(
        ScreenLine(mark + describe(event), "bold red" if last else "", len(mark) + 4)
    )
    further = {"request": 0, "block": 0}
    for entry in changed or ():
        if entry.near:
            printed.lines.append(ScreenLine(" " * 8 + entry.text, "dim", 10))
        elif entry.kind in further:
            further[entry.kind] += 1
    others = [f"{n} other {kind}{'s' * (n > 1)}" for kind, n in further.items() if n]
    if others:
        printed.lines.append(ScreenLine(f"{'':8}and {' and '.join(others)}", "dim", 10))
    return not all(entry.near for entry in changed or ())


def _went_wrong(sign: Sign) -> str:
    name, sentence = sign.finding.invariant, sign.finding.sentence
    return f"      --- it went wrong here, {name}: {sentence} ---"
