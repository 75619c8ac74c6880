"""This module shows the blocks of each engine at the end of a trace, as tables."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.traces.state_diff import Flat, nested
from kvproof.reports.changes import content, key, owners, value
from kvproof.reports.screen import ScreenLine
from kvproof.reports.tables import table

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
