"""This module shows the blocks of each engine at the end of a trace, as tables."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from kvproof.model.files.reading import printable
from kvproof.model.traces.state_diff import Flat, nested
from kvproof.reports.changes import content, key, owners, value
from kvproof.reports.screen import ScreenLine, cells
from kvproof.reports.tables import GAP, TextTable

HEADINGS = ("block", "refs", "held by", "cached as", "holds")

IDLE = ("0", "free", "", "nothing")
"""The row of a block that was never used, or whose use has left no record."""


class BlockRow(NamedTuple):
    """A block, or consecutive unused blocks, and whether the last event changed it."""

    cells: tuple[str, ...]
    changed: bool = False


def block_tables(states: list[Flat], width: int) -> Iterator[ScreenLine]:
    """Return the lines of the blocks of each engine after the last event; `*` marks those it
    changed. `states` are those before and after it. The tables are side by side where they fit."""
    last, before = nested(states[-1]), nested(states[0])
    rows = {
        name: list(_rows(name, engine, before["engines"][name], states[-1]))
        for name, engine in last["engines"].items()
    }
    tables = [_table(name, found) for name, found in rows.items()]
    widths = [max(cells(line.text) for line in table) for table in tables]
    if sum(widths) + GAP * (len(widths) - 1) <= width:
        for lines in zip_longest(*tables, fillvalue=ScreenLine()):
            yield _joined(lines, widths)
        return
    for number, (name, found) in enumerate(rows.items()):
        if number:
            yield ScreenLine()
        yield from _table(name, found, width)


def _table(name: str, rows: list[BlockRow], width: int = 1_000_000) -> list[ScreenLine]:
    """Return the lines of one engine, whose title is not folded."""
    table = TextTable(HEADINGS, tuple(row.cells for row in rows), rule=False)
    head, *bodies = table.row_lines(width)
    lines = [ScreenLine(printable(f"Engine {name} at the end")), *map(ScreenLine, head)]
    for row, body in zip(rows, bodies, strict=True):
        lines += [ScreenLine(x, bold=((0, len(x)),) if row.changed else ()) for x in body]
    return [line._replace(hang=0) for line in lines]


def _joined(lines: tuple[ScreenLine, ...], widths: list[int]) -> ScreenLine:
    """Join lines of several tables."""
    text, bold = "", []
    for line, wide in zip(lines, widths, strict=True):
        if line.bold:
            bold.append((len(text), len(text) + len(line.text)))
        text += line.text + " " * (wide - cells(line.text) + GAP)
    return ScreenLine(text.rstrip(), hang=0, bold=tuple(bold))


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
