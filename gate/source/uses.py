"""What the code of one module uses by name."""

import ast
from typing import NamedTuple

from kvproof.gate.source import form, imports, logs, names

GETATTR = "__getattr__"
"""The function of a module that gives what it does not bind."""

Parts = tuple[str, ...]
"""A name with attributes: `a.b.c` is three parts."""


class Used(NamedTuple):
    """What a statement uses when it runs: names with attributes, and what it imports itself."""

    parts: frozenset[Parts]
    imports: dict[str, imports.ImportTarget]


class Uses:
    """What each statement at the top of a module uses. Each is read once."""

    def __init__(self, body: list[ast.stmt], package: str) -> None:
        self.body = body
        self.package = package
        self.by_statement: dict[ast.stmt, Used] = {}
        self.tops: dict[str, list[ast.stmt]] = {}
        for statement in body:
            if isinstance(statement, (*names.FUNCTIONS, ast.ClassDef)):
                self.tops.setdefault(statement.name, []).append(statement)
                continue
            for node in names.within(_runs(statement)):
                for name in names.binds(node):
                    self.tops.setdefault(name, []).append(statement)
        if GETATTR in self.tops:
            for statement in body:
                for key, value in names.table(statement).items():
                    self.tops.setdefault(key, [ast.Expr(value)])

    def of(self, statement: ast.stmt) -> Used:
        """What a statement uses."""
        if statement not in self.by_statement:
            self.by_statement[statement] = self._read(statement)
        return self.by_statement[statement]

    def _read(self, statement: ast.stmt) -> Used:
        parts: set[Parts] = set()
        targets: dict[str, imports.ImportTarget] = {}
        stack: list[ast.AST] = [statement]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Name | ast.Attribute) and (found := names.chain(node)):
                parts.add(found)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                targets.update(imports.pairs(node, self.package))
            else:
                stack += _inner(node)
        return Used(frozenset(parts), targets)


def _runs(statement: ast.stmt) -> list[ast.stmt]:
    """A statement without what only a type checker reads."""
    if isinstance(statement, ast.If) and logs.for_types_only(statement):
        return statement.orelse
    return [statement]


def _inner(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that run: no log calls, and no annotations that nothing reads."""
    if isinstance(node, ast.expr):
        return names.children(node)
    if isinstance(node, ast.arg) or logs.logs(node):
        return []
    if isinstance(node, ast.If) and logs.for_types_only(node):
        return [*node.orelse]
    if isinstance(node, names.FUNCTIONS):
        return [*node.decorator_list, *names.defaults(node.args), *node.body]
    if isinstance(node, ast.AnnAssign):
        return [node.target, *([node.value] if node.value else [])]
    if isinstance(node, ast.ClassDef) and form.reads_annotations(node):
        fields = [each.annotation for each in node.body if isinstance(each, ast.AnnAssign)]
        return [*names.children(node), *fields]
    if isinstance(node, ast.stmt) and logs.is_logger(node):
        return []
    return names.children(node)
