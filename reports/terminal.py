"""A trace as text for a terminal: the changes by each event, the step that breaks the invariant,
the blocks of all engines side by side, the reasons, and the command that replays the trace."""

import io
import shlex
from pathlib import Path
from typing import Any, TextIO

from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvproof.invariants.registry import CHECKS
from kvproof.model.events import describe
from kvproof.model.files.reading import shown
from kvproof.model.signature import signature
from kvproof.model.traces.state_diff import Flat, nested
from kvproof.model.traces.trace import Trace
from kvproof.reports.changes import content, key, lines, owners, value
from kvproof.strategies.verdict import Consequence

WIDTH = 100

IDLE = ("0", "free", "", "nothing")
"""The row of a block that was never used, or whose use has left no record."""


def render(trace: Trace, path: Path | None = None, leads_to: Consequence | None = None) -> str:
    """The trace as text without colour; the text does not depend on the terminal. `leads_to` is the
    consequence of its finding, if it was computed."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, color_system=None, highlight=False)
    _print(console, trace, path, leads_to)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def show(
    file: TextIO, trace: Trace, path: Path | None = None, leads_to: Consequence | None = None
) -> None:
    """Print the trace: in colour on a terminal, otherwise as `render` gives it."""
    if not file.isatty():
        file.write(render(trace, path, leads_to))
        return
    _print(Console(file=file, width=WIDTH, highlight=False), trace, path, leads_to)


def _print(console: Console, trace: Trace, path: Path | None, leads_to: Consequence | None) -> None:
    console.print(Text(_headline(trace), style="bold"))
    console.print()
    states = trace.states()
    for index, event in enumerate(trace.events):
        breaks = trace.finding is not None and index + 1 == len(trace.events)
        mark = ">" if breaks else " "
        text = f"{mark}{index + 1:3}  {describe(event)}"
        style = "bold red" if breaks else ""
        console.print(Text(text, style=style), soft_wrap=True)
        if trace.changes is not None:
            for line in lines(states[index], trace.changes[index], states[index + 1]):
                console.print(Padding(Text(line, style="dim"), (0, 0, 0, 8)))
    console.print()
    if states:
        console.print(_tables(states[-2:]))
        console.print("A block is cached as, and holds, prefixes (of the group in brackets).")
    else:
        console.print("The states were not recorded.")
    console.print()
    _print_finding(console, trace)
    if leads_to is not None:
        console.print(Text(f"  {leads_to.sentence}"))
    if path is not None:
        console.print()
        console.print(Text(replay_line(trace, path)), soft_wrap=True)


def _headline(trace: Trace) -> str:
    faults = ", ".join(trace.faults) or "none"
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    return (
        f"{len(trace.events)} events on machine {where}, cluster {trace.cluster.name}, "
        f"faults {faults}, seed {trace.seed}"
    )


def _print_finding(console: Console, trace: Trace) -> None:
    if trace.finding is None:
        console.print("No invariant is broken in this trace.")
        return
    name = trace.finding.invariant
    known = CHECKS.get(name)
    console.print(Text(f"BROKEN at event {len(trace.events)}: {name}", style="bold red"))
    if known is not None:
        console.print(Text(f"It must be true that {known.name} ({known.origin})."))
        if known.severity is not None:
            console.print(Text(f"How grave: {known.severity.words}."))
        found = signature(trace.cluster, trace.events[-1], name, trace.finding.about)
        console.print(Text(f"Signature: {found.words}."))
    for reason in trace.finding.reasons[:-1]:
        console.print(Text(f"  because  {reason}"))
    console.print(Text(f"  yet      {trace.finding.reasons[-1]}"))


def replay_line(trace: Trace, path: Path) -> str:
    """The line with the command that replays a trace from its file."""
    command = f"kvproof replay {shlex.quote(shown(path))} --machine {trace.machine}"
    return f"Replay it: {command}"


def _tables(states: list[Flat]) -> Columns:
    """The blocks of each engine after the last event; `*` marks those it changed."""
    last = nested(states[-1])
    before = nested(states[0])
    engines = last["engines"]
    return Columns(
        [
            _engine(name, engine, before["engines"][name], states[-1])
            for name, engine in engines.items()
        ],
        padding=(0, 2),
    )


def _engine(name: str, engine: dict[str, Any], before: dict[str, Any], state: Flat) -> Table:
    table = Table(title=f"Engine {name} at the end", box=None, width=48, title_justify="left")
    for heading in ("block", "refs", "held by", "cached as", "holds"):
        table.add_column(heading, overflow="fold")
    held, old = owners(engine), owners(before)
    idle: list[str] = []
    for block, fields in engine["blocks"].items():
        who = held.get(int(block), [])
        now = (fields, engine["memory"][block], who)
        changed = now != (before["blocks"][block], before["memory"][block], old.get(int(block), []))
        row = (
            value(fields["refs"]),
            "null block" if block == "0" else " ".join(who) or "free",
            key(fields["key"]) if fields["key"] else "",
            content(name, block, state),
        )
        if row == IDLE and not changed:
            idle.append(block)
            continue
        _flush(table, idle)
        style = "bold" if changed else ""
        table.add_row(f"{block}{'*' if changed else ''}", *row, style=style)
    _flush(table, idle)
    return table


def _flush(table: Table, idle: list[str]) -> None:
    """Add one row for consecutive unused blocks."""
    if idle:
        table.add_row(idle[0] if len(idle) == 1 else f"{idle[0]}-{idle[-1]}", *IDLE)
        idle.clear()
