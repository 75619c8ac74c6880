"""This module shows the blocks of each engine at the end of a trace, as tables."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproof.model.traces.state_diff import Flat, nested
from kvproof.reports.changes import content, key, owners, value
from kvproof.reports.screen import ScreenLine
from kvproof.reports.tables import TextTable

HEADINGS = ("block", "refs", "held by", "cached as", "holds")

IDLE = ("0", "free", "", "nothing")
"""The row of a block that was never used, or whose use has left no record."""


class BlockRow(NamedTuple):
    """A block, or consecutive unused blocks, and whether the last event changed it."""

    cells: tuple[str, ...]
    changed: bool = False


def block_tables(states: list[Flat], width: int) -> Iterator[ScreenLine]:
    """Return the lines of the blocks of each engine after the last event; `*` marks those it
    changed. `states` are those before and after it."""
    last, before = nested(states[-1]), nested(states[0])
    for number, (name, engine) in enumerate(last["engines"].items()):
        if number:
            yield ScreenLine()
        yield ScreenLine(f"Engine {name} at the end", hang=0)
        yield from _table(list(_rows(name, engine, before["engines"][name], states[-1])), width)


def _table(rows: list[BlockRow], width: int) -> Iterator[ScreenLine]:
    """Return the lines of the blocks of one engine."""
    table = TextTable(HEADINGS, tuple(row.cells for row in rows), rule=False)
    head, *bodies = table.row_lines(width)
    yield from (ScreenLine(line, hang=0) for line in head)
    for row, body in zip(rows, bodies, strict=True):
        style = "bold" if row.changed else ""
        yield from (ScreenLine(line, style, hang=0) for line in body)


def _rows(
    name: str, engine: dict[str, Any], before: dict[str, Any], state: Flat
) -> Iterator[BlockRow]:
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
        yield BlockRow((f"{block}{'*' if changed else ''}", *row), changed)
    yield from _unused(idle)


def _unused(idle: list[str]) -> Iterator[BlockRow]:
    """Return one row for consecutive unused blocks, and take them off the list."""
    if idle:
        yield BlockRow((idle[0] if len(idle) == 1 else f"{idle[0]}-{idle[-1]}", *IDLE))
        idle.clear()
