"""This module prints a trace as text for a terminal: what is broken and why, how to replay it, the
cluster, the events with what they change, the blocks of all engines at the end, and the answer
again: this is what a small screen still shows."""

import os
import shlex
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from kvproof.invariants.check import FOUND
from kvproof.invariants.registry import CHECKS
from kvproof.model.events import Schedule, describe
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding, signature
from kvproof.model.known_finding import KnownFinding
from kvproof.model.traces.state_diff import Flat, nested
from kvproof.model.traces.trace import Trace
from kvproof.reports.changes import content, key, owners, value
from kvproof.reports.screen import ScreenLine, columns, say, table
from kvproof.reports.screen import show as print_lines
from kvproof.reports.trace.about import Sign, first_sign
from kvproof.reports.trace.engines import engines, prompts
from kvproof.reports.trace.events import events
from kvproof.reports.trace.functions import at_fault, functions
from kvproof.reports.trace.hang import Hang, hang_of
from kvproof.reports.trace.in_words import in_words


class Extra(NamedTuple):
    """What is known of a trace besides: its file. With `whole`, nothing is folded. `rest` are lines
    before the answer at the end. `known` is the known finding of vLLM that the trace shows."""

    path: Path | None = None
    whole: bool = False
    rest: tuple[str, ...] = ()
    known: KnownFinding | None = None


NOTHING = Extra()


def show(file: TextIO, trace: Trace, extra: Extra = NOTHING) -> None:
    """Print the trace in the width of the file: in colour on a terminal, elsewhere without."""
    hang, sign = hang_of(trace), first_sign(trace)
    answer = [*_finding(trace, extra, hang, sign)]
    print_lines(file, (*answer, *_lines(trace, extra, hang, sign)))
    for text in extra.rest:
        say(text, file=file)
    if trace.finding is not None:
        print_lines(file, answer)


def _lines(
    trace: Trace, extra: Extra, hang: Hang | None, sign: Sign | None
) -> Iterator[ScreenLine]:
    """Return the lines between the answer and the answer once more."""
    yield ScreenLine()
    yield ScreenLine(_headline(trace), "bold")
    for name in trace.faults:
        if name in FAULTS:
            yield ScreenLine(f"Fault {name}: {FAULTS[name].mistake}.")
    if trace.finding is not None:
        yield ScreenLine(f"Event {len(trace.events)} in words: {in_words(trace.events[-1])}.")
    yield from prompts(trace.cluster)
    yield from engines(trace.cluster)
    yield ScreenLine()
    begins = hang.begins if hang else None
    printed = events(trace, whole=extra.whole, loop=begins, sign=sign)
    if printed.left_out:
        yield ScreenLine(
            f"Changes that do not concern {printed.left_out} are left out (report --all)."
        )
    if any(isinstance(event, Schedule) and event.chose for event in trace.events):
        yield ScreenLine(CHOICES)
    yield from printed.lines
    yield ScreenLine()
    if printed.states:
        yield from block_tables(printed.states, columns())
        yield ScreenLine(TABLES)
    else:
        yield ScreenLine("The states were not recorded.")
    yield from _signature(trace)
    about = trace.finding.invariant if trace.finding else "NAME"
    yield ScreenLine(f"What words mean: kvproof explain words, and kvproof explain {about}")
    yield ScreenLine()


CHOICES = "In a step: Admit(request, tokens hit, tokens to load), Compute(request, tokens)."
"""What the numbers of the choices of a scheduler count."""

TABLES = (
    "cached as: the prefix that is the block's cache key. holds: for each slot the prefix that its "
    "KV or state was computed from. In brackets: the cache group. * changed by the last event; _ a "
    "slot that was never written."
)
"""What stands in the tables of the blocks."""


def _signature(trace: Trace) -> Iterator[ScreenLine]:
    """Say how the finding is recognised in another trace: without numbers and names."""
    if trace.finding is not None and trace.finding.invariant in CHECKS:
        found = signature(trace.cluster, trace.events[-1], trace.finding)
        yield ScreenLine(f"Signature: {found.words}.")


def _headline(trace: Trace) -> str:
    faults = f", faults {', '.join(trace.faults)}" if trace.faults else ""
    where = trace.machine + (f" (vLLM {trace.vllm})" if trace.vllm else "")
    return (
        f"{len(trace.events)} events on machine {where}, cluster {trace.cluster.name}{faults}, "
        f"seed {trace.seed}"
    )


def _finding(
    trace: Trace, extra: Extra, hang: Hang | None, sign: Sign | None
) -> Iterator[ScreenLine]:
    """Say what is broken, how grave that is, why, where, and how to see it again."""
    if trace.finding is None:
        yield ScreenLine("No invariant is broken in this trace.", "bold")
    else:
        yield from _broken(trace, trace.finding, extra.known, hang, sign)
    if extra.path is not None:
        yield ScreenLine(replay_line(trace, extra.path), hang=0)


def _broken(
    trace: Trace, finding: Finding, known: KnownFinding | None, hang: Hang | None, sign: Sign | None
) -> Iterator[ScreenLine]:
    yield from finding_lines(finding)
    sentences = [wait.sentence for wait in hang.waits] if hang and not hang.printed else ()
    if sentences:
        yield ScreenLine("Who waits for what:")
    for sentence in sentences:
        yield ScreenLine(f"  {sentence}")
    yield from _where(trace, hang, sign)
    yield from in_vllm(trace, finding, known)


def _where(trace: Trace, hang: Hang | None, sign: Sign | None) -> Iterator[ScreenLine]:
    """Name the event at which the finding shows, and before it the event at which the trace went
    wrong, if that is another one."""
    if sign is not None:
        name = f"{sign.event}, {describe(trace.events[sign.event - 1])}"
        yield ScreenLine(f"Went wrong: event {name}: {sign.finding.sentence}", hang=12)
    last = len(trace.events)
    if hang is None or hang.begins is None:
        yield ScreenLine(f"Where: event {last}, {describe(trace.events[-1])}", hang=7)
        return
    if hang.begins == last:
        which = f"event {last} repeats for ever"
    else:
        which = f"events {hang.begins} to {last} repeat for ever"
    events = "; ".join(dict.fromkeys(map(describe, trace.events[hang.begins - 1 :])))
    yield ScreenLine(f"Where: {which}: {events}", hang=7)


def in_vllm(trace: Trace, finding: Finding, known: KnownFinding | None) -> Iterator[ScreenLine]:
    """Name the functions of vLLM: those at fault where they are known, else those that the last
    event calls."""
    if known is not None:
        yield ScreenLine(f"Known finding: {known.name}: {known.says}", hang=9)
    guilty = at_fault(trace.faults, known)
    if guilty:
        yield ScreenLine(f"In vLLM, at fault: {', '.join(guilty)}", hang=9)
    else:
        called = functions(trace.events[-1], finding.about.request)
        yield ScreenLine(f"In vLLM, called by this event: {', '.join(called)}", hang=9)


def finding_lines(finding: Finding) -> Iterator[ScreenLine]:
    """Say what is broken, how grave that is, and why."""
    known = FOUND.get(finding.invariant)
    grave = f" (severity: {known.severity.words})" if known and known.severity else ""
    yield ScreenLine(f"BROKEN: {finding.invariant}{grave}", "bold red")
    if known is not None:
        yield ScreenLine(f"It must be true that {known.name} ({known.origin}).")
    for reason in finding.sentences[:-1]:
        yield ScreenLine(f"  because  {reason}", hang=11)
    yield ScreenLine(f"  yet      {finding.sentences[-1]}", hang=11)


def replay_line(trace: Trace, path: Path) -> str:
    """Return the line with the command that replays a trace from its file."""
    tree = f" --vllm {shell_word(Path(trace.tree))}" if trace.tree else ""
    return f"Replay it: kvproof replay {shell_word(path)} --machine {trace.machine}{tree}"


def shell_word(path: Path) -> str:
    """Return a path as a word that a shell reads back, also where its name is not printable."""
    text = os.fsencode(path)
    name = text.decode("utf-8", "replace")
    if name.isprintable() and name.encode() == text:
        return shlex.quote(name)
    plain = frozenset(b"/._-" + string.ascii_letters.encode() + string.digits.encode())
    quoted = "".join(chr(byte) if byte in plain else f"\\x{byte:02x}" for byte in text)
    return f"$'{quoted}'"


HEADINGS = ("block", "refs", "held by", "cached as", "holds")

IDLE = ("0", "free", "", "nothing")
"""The row of a block that was never used, or whose use has left no record."""


def block_tables(states: list[Flat], width: int) -> Iterator[ScreenLine]:
    """Return the lines of the blocks of each engine after the last event; `*` marks those it
    changed. `states` are those before and after it."""
    last, before = nested(states[-1]), nested(states[0])
    for number, (name, engine) in enumerate(last["engines"].items()):
        if number:
            yield ScreenLine()
        yield ScreenLine(f"Engine {name} at the end", hang=0)
        rows = list(_rows(name, engine, before["engines"][name], states[-1]))
        yield from table(HEADINGS, rows, width)


def _rows(
    name: str, engine: dict[str, Any], before: dict[str, Any], state: Flat
) -> Iterator[tuple[str, ...]]:
    """Return the rows of the blocks of an engine."""
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
        yield from _unused(idle)
        yield f"{block}{'*' if changed else ''}", *row
    yield from _unused(idle)


def _unused(idle: list[str]) -> Iterator[tuple[str, ...]]:
    """Return one row for consecutive unused blocks, and take them off the list."""
    if idle:
        yield idle[0] if len(idle) == 1 else f"{idle[0]}-{idle[-1]}", *IDLE
        idle.clear()
