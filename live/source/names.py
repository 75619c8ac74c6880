"""The names that a body of code binds, and chains of attributes."""

import ast
from collections.abc import Iterator

Functions = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def here(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that belong to the same scope: of a nested function, a lambda or a
    class only what is evaluated where it is defined; of a comprehension all but its targets."""
    if isinstance(node, FUNCTIONS):
        yield from (*node.decorator_list, *defaults(node.args))
    elif isinstance(node, ast.Lambda):
        yield from defaults(node.args)
    elif isinstance(node, ast.ClassDef):
        yield from (*node.decorator_list, *node.bases, *node.keywords)
    elif isinstance(node, ast.comprehension):
        yield from (node.iter, *node.ifs)
    else:
        yield from ast.iter_child_nodes(node)


def within(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of one scope."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(here(node))


def defaults(args: ast.arguments) -> list[ast.expr]:
    """The default values of parameters."""
    return [*args.defaults, *(value for value in args.kw_defaults if value is not None)]


def parameters(args: ast.arguments) -> list[str]:
    """The names of all parameters."""
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    rest = [each for each in (args.vararg, args.kwarg) if each is not None]
    return [each.arg for each in (*every, *rest)]


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


def loaded(node: ast.AST) -> frozenset[str]:
    """All names in some code."""
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
