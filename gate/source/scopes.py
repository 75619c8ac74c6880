"""Which names of a function are its locals: those may be renamed.

Parameters keep their names, because callers may use them as keywords. So do imported names, nested
functions and classes, and everything in a class body.
"""

import ast
from collections.abc import Iterable

from kvproof.gate.source.names import FUNCTIONS, binds, walk, within

LOOKS_AT_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "globals"})
"""Functions that can see the names of locals."""

LOOKS_AT_AN_OBJECT = frozenset({"vars", "dir"})
"""Those of `LOOKS_AT_NAMES` that see the names of an object instead, if they are called with
one."""


class NameScope:
    """The names of one function, comprehension or class body. `own` keep their names, `locals` may
    be renamed."""

    def __init__(self, own: Iterable[str], local: Iterable[str], is_class: bool = False) -> None:
        self.own = frozenset(own)
        self.locals = frozenset(local) - self.own
        self.is_class = is_class
        self.outside: frozenset[str] = frozenset()


def of_body(parameters: Iterable[str], body: list[ast.stmt]) -> NameScope:
    """The scope of a function."""
    kept: set[str] = set(parameters)
    local: set[str] = set()
    outside: set[str] = set()
    for node in within(body):
        if isinstance(node, ast.Global):
            outside.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            continue
        elif isinstance(node, ast.Name | ast.ExceptHandler):
            local.update(binds(node))
        else:
            kept.update(binds(node))
    foreign = {
        name for node in within(body) if isinstance(node, ast.Nonlocal) for name in node.names
    }
    scope = NameScope(kept - outside - foreign, local - outside - foreign)
    scope.outside = frozenset(outside)
    return scope


def of_class(body: list[ast.stmt]) -> NameScope:
    """The scope of a class body."""
    return NameScope((name for node in within(body) for name in binds(node)), (), is_class=True)


def of_targets(generators: list[ast.comprehension]) -> NameScope:
    """The scope of a comprehension."""
    targets = (node for each in generators for node in walk(each.target))
    return NameScope((), (name for node in targets for name in binds(node)))


class ScopeStack:
    """The scopes around the code that is being read, and the tokens of the locals found so far."""

    def __init__(self, keeps_all: bool) -> None:
        self.scopes: list[NameScope] = []
        self.tokens: dict[tuple[NameScope, str], str] = {}
        self.keeps_all = keeps_all

    def of(self, name: str) -> str | None:
        """The token of a local, the name itself where a function binds it and it is kept, or None
        for a name of the module."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if scope.is_class and depth:
                continue
            if name in scope.outside:
                return None
            if name in scope.own:
                return name
            if name in scope.locals:
                if self.keeps_all:
                    return name
                return self.tokens.setdefault((scope, name), f"${len(self.tokens)}")
        return None


def looks_at_names(node: ast.AST) -> bool:
    """Whether some code can see the names of its locals."""
    mentions = calls_with_object = 0
    for each in walk(node):
        if isinstance(each, ast.Name):
            mentions += each.id in LOOKS_AT_NAMES
        elif isinstance(each, ast.Call) and _looks_at_an_object(each):
            calls_with_object += 1
    return mentions > calls_with_object


def _looks_at_an_object(node: ast.Call) -> bool:
    """Whether a call surely has an object to look at; `vars(*found)` may have none."""
    if not isinstance(node.func, ast.Name) or node.func.id not in LOOKS_AT_AN_OBJECT:
        return False
    return any(not isinstance(each, ast.Starred) for each in node.args)


def binds_in_function(node: ast.AST, name: str) -> bool:
    """Whether a function, or one inside it, has a parameter or a local of this name."""
    for each in walk(node):
        if isinstance(each, ast.arg) and each.arg == name:
            return True
        if name in binds(each) and not isinstance(each, FUNCTIONS):
            return True
    return False
