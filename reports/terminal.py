"""A trace as text for a terminal: the changes by each event, the step that breaks the invariant,
the blocks of all engines side by side, the reasons, and the command that replays the trace."""

import os
import shlex
import string
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from kvproof.invariants.registry import CHECKS
from kvproof.model.events import describe
from kvproof.model.finding import Finding
from kvproof.model.signature import signature
from kvproof.model.traces.trace import Trace
from kvproof.reports.block_tables import block_tables
from kvproof.reports.changes import lines
from kvproof.reports.screen import WIDTH, Line, columns, console
from kvproof.strategies.verdict import Consequence


def render(
    trace: Trace,
    path: Path | None = None,
    leads_to: Consequence | None = None,
    width: int = WIDTH,
) -> str:
    """The trace as text of `width` columns, without colour. `leads_to` is the consequence of its
    finding, if it was computed."""
    lines = (part for line in _lines(trace, path, leads_to, width) for part in line.folded(width))
    return "".join(f"{line.text}\n" for line in lines)


def show(
    file: TextIO, trace: Trace, path: Path | None = None, leads_to: Consequence | None = None
) -> None:
    """Print the trace in the width of the file: in colour on a terminal, elsewhere without."""
    screen = console(file)
    width = columns(file)
    for line in _lines(trace, path, leads_to, width):
        for part in line.folded(width):
            screen.print(part.styled)


def _lines(
    trace: Trace, path: Path | None, leads_to: Consequence | None, width: int
) -> Iterator[Line]:
    yield Line(_headline(trace), "bold")
    yield Line()
    states = trace.states()
    last = [*islice(states, 1)]
    for index, event in enumerate(trace.events):
        breaks = trace.finding is not None and index + 1 == len(trace.events)
        number = f"{'>' if breaks else ' '}{index + 1:3}  "
        yield Line(number + describe(event), "bold red" if breaks else "", len(number) + 4)
        if trace.changes is not None:
            last = [last[-1], next(states)]
            for line in lines(last[0], trace.changes[index], last[1]):
                yield Line(" " * 8 + line, "dim", 10)
    yield Line()
    if last:
        yield from block_tables(last, width)
        yield Line("A block is cached as, and holds, prefixes (of the group in brackets).")
    else:
        yield Line("The states were not recorded.")
    yield Line()
    yield from _finding(trace)
    if leads_to is not None:
        yield Line(f"  {leads_to.sentence}")
    if path is not None:
        yield Line()
        yield Line(replay_line(trace, path), hang=0)


def _headline(trace: Trace) -> str:
    faults = ", ".join(trace.faults) or "none"
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    return (
        f"{len(trace.events)} events on machine {where}, cluster {trace.cluster.name}, "
        f"faults {faults}, seed {trace.seed}"
    )


def _finding(trace: Trace) -> Iterator[Line]:
    if trace.finding is None:
        yield Line("No invariant is broken in this trace.")
        return
    found = trace.finding
    of = signature(trace.cluster, trace.events[-1], found.invariant, found.about)
    yield from finding_lines(found, len(trace.events), f"Signature: {of.words}.")


def finding_lines(finding: Finding, step: int, after: str = "") -> Iterator[Line]:
    """What is broken at this event, and why. What comes `after` the severity is of a known check
    alone."""
    known = CHECKS.get(finding.invariant)
    yield Line(f"BROKEN at event {step}: {finding.invariant}", "bold red")
    if known is not None:
        yield Line(f"It must be true that {known.name} ({known.origin}).")
        if known.severity is not None:
            yield Line(f"How grave: {known.severity.words}.")
        if after:
            yield Line(after)
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
