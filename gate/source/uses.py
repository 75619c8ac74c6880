"""What a statement uses by name."""

import ast
from typing import NamedTuple

from kvproof.gate.source import form, imports, logs, names

Parts = tuple[str, ...]
"""A name with attributes: `a.b.c` is three parts."""


class Used(NamedTuple):
    """What a statement uses when it runs: names with attributes, and what it imports itself."""

    parts: frozenset[Parts]
    imports: dict[str, imports.ImportTarget]


def used(statement: ast.stmt, package: str) -> Used:
    """What a statement of a module in this package uses."""
    parts: set[Parts] = set()
    targets: dict[str, imports.ImportTarget] = {}
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name | ast.Attribute) and (found := names.chain(node)):
            parts.add(found)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            targets.update(imports.pairs(node, package))
        else:
            stack += _inner(node)
    return Used(frozenset(parts), targets)


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
