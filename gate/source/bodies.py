"""Compares the functions of one file on base and head."""

from collections import Counter
from collections.abc import Iterator

from kvproof.gate.source.units import ERRORS, MODULE, BodyStatement, Module

Differing = tuple[str, frozenset[str]]
"""The name of a unit, and the names at the top of its module that it is or binds; the empty name is
the module."""


def top(name: str) -> str:
    """The name at the top of the module of which a unit is a part; empty for the module."""
    if name == MODULE:
        return ""
    return name.removeprefix("<class ").removesuffix(">").split(".")[0]


def differing(base: Module, head: Module) -> list[Differing]:
    """The units that only one side has, or that may behave differently."""
    found = [
        (name, frozenset({top(name)}))
        for name in dict.fromkeys((*head.units, *base.units))
        if name != MODULE and _differs(base, head, name)
    ]
    try:
        tops = _rest(base, head, MODULE)
    except ERRORS:
        tops = frozenset({""})
    if not (found or tops) and head.imports.may_do_more_than(base.imports):
        tops = frozenset({""})
    return [*found, *([(MODULE, tops)] if tops else [])]


def _differs(base: Module, head: Module, name: str) -> bool:
    if name not in base.units or name not in head.units:
        return True
    old, new = base.units[name], head.units[name]
    if len(old.nodes) != len(new.nodes):
        return True
    names_mean_the_same = (base.imports.plain, base.has_logger) == (
        head.imports.plain,
        head.has_logger,
    )
    if names_mean_the_same and base.text(old) == head.text(new):
        return False
    try:
        if name.startswith("<class "):
            return bool(_rest(base, head, name))
        return bool(base.form(name) != head.form(name))
    except ERRORS:
        return True


def _rest(base: Module, head: Module, name: str) -> frozenset[str]:
    """The names that the differing statements of a class or a module bind; the empty name for one
    that binds nothing, and for another order."""
    before, after = base.entries(name), head.entries(name)
    if len(before) != len(after):
        return frozenset({""})
    found: set[str] = set()
    for old, new in zip(before, after, strict=True):
        both = {"", *({each.defines for each in old} & {each.defines for each in new})}
        kept = [[each for each in side if each.defines in both] for side in (old, new)]
        if [each.form for each in kept[0]] != [each.form for each in kept[1]]:
            found |= _bound(kept[0], kept[1]) or {""}
    return frozenset(found)


def _bound(old: list[BodyStatement], new: list[BodyStatement]) -> set[str]:
    before, after = Counter(old), Counter(new)
    rest: Iterator[BodyStatement] = ((before - after) + (after - before)).elements()
    return {name for entry in rest for name in (entry.binds or {""})}
