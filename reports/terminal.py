"""A trace as text for a terminal: what is broken and why, how to replay it, the cluster, the events
with what they change, the blocks of all engines at the end, and what the words mean."""

import os
import shlex
import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from kvproof.invariants.registry import CHECKS
from kvproof.model.events import describe
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.signature import signature
from kvproof.model.traces.trace import Trace
from kvproof.reports.block_tables import block_tables
from kvproof.reports.output.search import PointOfNoReturn
from kvproof.reports.screen import WIDTH, Line, columns, console
from kvproof.reports.trace.engines import engines
from kvproof.reports.trace.events import events
from kvproof.reports.trace.functions import functions
from kvproof.reports.trace.in_words import in_words
from kvproof.reports.trace.legend import legend
from kvproof.strategies.verdict import Consequence


class Extra(NamedTuple):
    """What is known of a trace besides: its file, the consequence of its finding, and the event
    from which the violation was certain. With `whole`, nothing is folded."""

    path: Path | None = None
    leads_to: Consequence | None = None
    point: PointOfNoReturn | None = None
    whole: bool = False


NOTHING = Extra()


def render(trace: Trace, extra: Extra = NOTHING, width: int = WIDTH) -> str:
    """The trace as text of `width` columns, without colour."""
    lines = (part for line in _lines(trace, extra, width) for part in line.folded(width))
    return "".join(f"{line.text}\n" for line in lines)


def show(file: TextIO, trace: Trace, extra: Extra = NOTHING) -> None:
    """Print the trace in the width of the file: in colour on a terminal, elsewhere without."""
    screen = console(file)
    width = columns(file)
    for line in _lines(trace, extra, width):
        for part in line.folded(width):
            screen.print(part.styled)


def _lines(trace: Trace, extra: Extra, width: int) -> Iterator[Line]:
    yield from _finding(trace, extra)
    yield Line()
    yield Line(_headline(trace), "bold")
    for name in trace.faults:
        if name in FAULTS:
            yield Line(f"Fault {name}: {FAULTS[name].mistake}.")
    if trace.finding is not None:
        yield Line(f"Event {len(trace.events)} in words: {in_words(trace.events[-1])}.")
    yield Line("A letter is a token, and a dot a sampled token.")
    yield from engines(trace.cluster, width)
    yield Line()
    point = extra.point
    printed = events(
        trace,
        whole=extra.whole,
        point_of_no_return=point.event if point else None,
        irrelevant=point.irrelevant if point else (),
    )
    yield from printed.lines
    yield Line()
    words = printed.words
    if printed.states:
        yield from block_tables(printed.states, width)
        yield Line("A block is cached as, and holds, prefixes (of the group in brackets).")
        yield Line()
        yield from legend(words)
    else:
        yield Line("The states were not recorded.")
    yield from _signature(trace)


def _signature(trace: Trace) -> Iterator[Line]:
    """How the finding is recognised in another trace: without numbers and names."""
    if trace.finding is not None and trace.finding.invariant in CHECKS:
        last, about = trace.events[-1], trace.finding.about
        found = signature(trace.cluster, last, trace.finding.invariant, about)
        yield Line()
        yield Line(f"Signature: {found.words}.")


def _headline(trace: Trace) -> str:
    faults = f", faults {', '.join(trace.faults)}" if trace.faults else ""
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    return (
        f"{len(trace.events)} events on machine {where}, cluster {trace.cluster.name}{faults}, "
        f"seed {trace.seed}"
    )


def _finding(trace: Trace, extra: Extra) -> Iterator[Line]:
    """What is broken, how grave that is, why, where, and how to see it again."""
    if trace.finding is None:
        yield Line("No invariant is broken in this trace.", "bold")
    else:
        yield from _broken(trace, trace.finding)
    if extra.leads_to is not None:
        yield Line(f"  {extra.leads_to.sentence}")
    if extra.path is not None:
        yield Line(replay_line(trace, extra.path), hang=0)


def _broken(trace: Trace, finding: Finding) -> Iterator[Line]:
    yield from finding_lines(finding)
    last = trace.events[-1]
    yield Line(f"Where: event {len(trace.events)}, {describe(last)}", hang=7)
    called = functions(last, finding.about.request)
    yield Line(f"In vLLM: {', '.join(called)}", hang=9)


def finding_lines(finding: Finding) -> Iterator[Line]:
    """What is broken, how grave that is, and why."""
    known = CHECKS.get(finding.invariant)
    grave = f": {known.severity.words}" if known and known.severity else ""
    yield Line(f"BROKEN: {finding.invariant}{grave}", "bold red")
    if known is not None:
        yield Line(f"It must be true that {known.name} ({known.origin}).")
    for reason in finding.reasons[:-1]:
        yield Line(f"  because  {reason}", hang=11)
    yield Line(f"  yet      {finding.reasons[-1]}", hang=11)


def replay_line(trace: Trace, path: Path) -> str:
    """The line with the command that replays a trace from its file."""
    return f"Replay it: kvproof replay {shell_word(path)} --machine {trace.machine}"


def shell_word(path: Path) -> str:
    """A path as a word that a shell reads back, also where its name is not printable."""
    text = os.fsencode(path)
    name = text.decode("utf-8", "replace")
    if name.isprintable() and name.encode() == text:
        return shlex.quote(name)
    plain = frozenset(b"/._-" + string.ascii_letters.encode() + string.digits.encode())
    quoted = "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in text)
    return f"$'{quoted}'"
