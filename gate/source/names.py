"""The names that a body of code binds, and chains of attributes."""

import ast
from collections.abc import Iterable, Iterator, Sequence

Functions = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

NO_NODES = frozenset({"ctx", "id", "attr", "op", "ops", "type_comment"})
"""Fields of nodes that have no names in them."""

MARKS = frozenset(
    (module, mark) for module in ("typing", "typing_extensions") for mark in ("final", "override")
)
"""Decorators that only note for a type checker what a function is, each with a module that has it.
vLLM needs both modules."""

_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}


def children(node: ast.AST) -> list[ast.AST]:
    """The children of a node: those of `ast.iter_child_nodes` that can have names
    in them, in a fraction of its time."""
    kind = type(node)
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(field for field in kind._fields if field not in NO_NODES)
    found: list[ast.AST] = []
    for field in _FIELDS[kind]:
        value = getattr(node, field, None)
        if type(value) is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all nodes in it, in no particular order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += children(node)


def here(node: ast.AST) -> Sequence[ast.AST]:
    """The children of a node that belong to the same scope: of a nested function, a lambda or a
    class only what is evaluated where it is defined; of a comprehension all but its targets."""
    if isinstance(node, FUNCTIONS):
        return (*node.decorator_list, *defaults(node.args))
    if isinstance(node, ast.Lambda):
        return defaults(node.args)
    if isinstance(node, ast.ClassDef):
        return (*node.decorator_list, *node.bases, *node.keywords)
    if isinstance(node, ast.comprehension):
        return (node.iter, *node.ifs)
    return children(node)


def within(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of one scope."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(here(node))


def running(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes that run where a body runs: the bodies of its classes too."""
    for node in within(body):
        yield node
        if isinstance(node, ast.ClassDef):
            yield from running(node.body)


def defaults(args: ast.arguments) -> list[ast.expr]:
    """The default values of parameters."""
    return [*args.defaults, *(value for value in args.kw_defaults if value is not None)]


def imported_as(alias: ast.alias) -> str:
    """The name that an import binds."""
    return alias.asname or alias.name.split(".")[0]


def binds(node: ast.AST) -> Iterator[str]:
    """The names that one node binds in its scope."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from map(imported_as, node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        if node.name is not None:
            yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest


def chain(node: ast.AST) -> tuple[str, ...]:
    """`a.b.c` as its parts; empty for what is not a name with attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (*reversed((*parts, node.id)),) if isinstance(node, ast.Name) else ()


def table(node: ast.stmt) -> dict[str, ast.expr]:
    """The rows of a table of the module with names as keys; empty for another statement."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
        return {}
    keys = [each.value for each in node.value.keys if isinstance(each, ast.Constant)]
    names_only = [key for key in keys if isinstance(key, str)]
    if len(set(names_only)) != len(node.value.keys):
        return {}
    return dict(zip(names_only, node.value.values, strict=True))
