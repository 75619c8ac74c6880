"""What binds the names of a module, and what those stand for that it imports."""

import ast
import collections.abc
import sys
import typing
from collections.abc import Iterator
from typing import NamedTuple

from kvproof.gate.source import logs, names

FOR_TYPES = {"typing": typing, "collections.abc": collections.abc}
"""Modules of which names are imported to be annotations."""


LOGGER = {("vllm.logger", ""), ("vllm.logger", "init_logger")}
"""What a module imports to make its logger."""


class ImportTarget(NamedTuple):
    """What a name stands for: a module, or `attribute` of it."""

    module: str
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}" if self.attribute else self.module


class Imports:
    """The imports of a module.

    `targets` has all that is imported at any place of its body, `for_types` what only a type
    checker imports, `stars` the modules of which everything is imported. `plain` are the names
    whose import may stand anywhere: nothing else binds them. `runs` are the imported modules, each
    with the names that it must have, and with an empty one. `bound` has what binds each name of the
    module, as often as it does, and `tops` the statements that do where the module runs."""

    def __init__(self, body: list[ast.stmt], name: str, is_package: bool) -> None:
        package = name if is_package else name.rpartition(".")[0]
        self.package = package
        self.targets: dict[str, ImportTarget] = {}
        self.for_types: dict[str, ImportTarget] = {}
        self.stars: list[str] = []
        self.tops: dict[str, list[ast.stmt]] = {}
        self.bound: dict[str, list[object]] = {}
        for statement in body:
            for is_typed, node in _scope(statement):
                self._add(statement, node, is_typed)
        top = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        self.runs = {(module, name) for node in top for module, name in _runs(node, package)}
        plain = {e for node in top for e in names.binds(node) if len({*self.bound[e]}) == 1}
        self.plain = {each: str(self.targets[each]) for each in plain if each in self.targets}

    def _add(self, statement: ast.stmt, node: ast.AST, is_typed: bool) -> None:
        """Note what a node in a statement of the module binds."""
        known: dict[str, ImportTarget] = {}
        if isinstance(node, ast.Import | ast.ImportFrom):
            known = dict(pairs(node, self.package))
            self.stars += [target.module for name, target in known.items() if name == "*"]
            for name in known.keys() - {"*"}:
                if is_typed:
                    self.for_types.setdefault(name, known[name])
                else:
                    self.targets[name] = known[name]
        for name in names.binds(node):
            self.bound.setdefault(name, []).append(known.get(name, node))
            if not is_typed:
                self.tops.setdefault(name, []).append(statement)

    def may_do_more_than(self, other: "Imports") -> bool:
        """Whether importing this module may fail or have an effect where importing another one has
        none, or have none where that has one."""
        new, old = self.runs - other.runs, other.runs - self.runs
        gone = {each for each in old if not each[1]}
        return not all(_is_harmless(*each) for each in new | gone)


def is_plain(node: ast.stmt, found: Imports) -> bool:
    """Whether a statement is an import that may stand anywhere."""
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return False
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return False
    return all(names.imported_as(alias) in found.plain for alias in node.names)


def _scope(statement: ast.stmt) -> Iterator[tuple[bool, ast.AST]]:
    """All nodes of a statement in the scope of its module, and whether only a type checker sees
    each."""
    stack: list[tuple[bool, ast.AST]] = [(False, statement)]
    while stack:
        is_typed, node = stack.pop()
        yield is_typed, node
        if isinstance(node, ast.If) and logs.for_types_only(node):
            stack.extend((True, each) for each in node.body)
            stack.extend((is_typed, each) for each in node.orelse)
        else:
            stack.extend((is_typed, each) for each in names.here(node))


def pairs(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, ImportTarget]]:
    """The names that an import binds, with what each stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (
                names.imported_as(alias),
                ImportTarget(alias.name if alias.asname else alias.name.split(".")[0]),
            )
        return
    module = source(node, package)
    for alias in node.names:
        yield names.imported_as(alias), ImportTarget(module, alias.name)


def source(node: ast.ImportFrom, package: str) -> str:
    """The full name of the module of `from ... import`."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: max(0, len(parts) - node.level + 1)]
    return ".".join((*parts, *filter(None, [node.module])))


def _runs(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    else:
        module = source(node, package)
        yield (module, "")
        yield from ((module, alias.name) for alias in node.names)


def _is_harmless(module: str, name: str) -> bool:
    """Whether an import of the standard library changes nothing, and succeeds."""
    if (module, name) in LOGGER | names.MARKS or (module, name) == ("typing_extensions", ""):
        return True
    if name:
        return module in FOR_TYPES and hasattr(FOR_TYPES[module], name)
    return module in sys.stdlib_module_names or module in FOR_TYPES
