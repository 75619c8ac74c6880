"""One Python file as its functions, the bodies of its classes, and the rest."""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import NamedTuple

from kvproof.gate.source import form, imports, logs, names
from kvproof.gate.source.uses import Used, used

MODULE = "<module>"

GETATTR = "__getattr__"
"""The function of a module that gives what it does not bind."""

ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python raises for a text that is not a program."""


class Unit(NamedTuple):
    """A function with all that is nested in it, the body of a class without its methods, or the
    body of a module. A name that is defined twice has several nodes. Lines count from 1."""

    name: str
    nodes: tuple[ast.AST, ...]
    line: int
    end_line: int


class BodyStatement(NamedTuple):
    """A statement of a body: a definition with its name, or the form of something else and the
    names that it binds."""

    defines: str
    form: form.Form
    binds: frozenset[str] = frozenset()


class Module:
    """A file that was parsed. `name` is the name of the module, as in `vllm.v1.request`.

    Raises one of ERRORS where the content is not UTF-8 or not a program."""

    def __init__(self, content: bytes, name: str, is_package: bool) -> None:
        text = content.decode("utf-8-sig")  # as vLLM is written, whatever a file says of itself
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tree = ast.parse(content)
        self.imports = imports.Imports(self.tree.body, name, is_package)
        loggers = len(self.imports.bound.get("logger", ()))
        has_logger = any(map(logs.is_logger, self.tree.body)) and loggers == 1
        # Its log calls mean something else in a module that does not make it.
        own = {"logger": logs.OF_MODULE} if has_logger else {}
        self.forms = form.Forms({**self.imports.plain, **own}, has_logger)
        self.has_logger = has_logger
        self._used: dict[ast.stmt, Used] = {}
        self.units: dict[str, Unit] = {}
        self._collect(self.tree.body, "")
        self._add(MODULE, self.tree, 1, max(1, len(self.lines)))

    @cached_property
    def tops(self) -> dict[str, list[ast.stmt]]:
        """The statements at the top of the module that bind each name, or give the value of a name
        that `__getattr__` of the module reads in a table."""
        found = dict(self.imports.tops)
        if GETATTR in found:
            for statement in self.tree.body:
                for key, value in names.table(statement).items():
                    found.setdefault(key, [ast.Expr(value)])
        return found

    def used(self, statement: ast.stmt) -> Used:
        """What a statement of the module uses by name. Each is read once."""
        if statement not in self._used:
            self._used[statement] = used(statement, self.imports.package)
        return self._used[statement]

    def _add(self, name: str, node: ast.AST, line: int, end_line: int) -> None:
        nodes: tuple[ast.AST, ...] = (node,)
        if (known := self.units.get(name)) is not None:
            nodes, line = (*known.nodes, node), min(line, known.line)
            end_line = max(end_line, known.end_line)
        self.units[name] = Unit(name, nodes, line, end_line)

    def _collect(self, body: list[ast.stmt], prefix: str) -> None:
        for node in definitions(body):
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            end_line = node.end_lineno or node.lineno
            if isinstance(node, ast.ClassDef):
                self._add(f"<class {prefix}{node.name}>", node, line, end_line)
                self._collect(node.body, f"{prefix}{node.name}.")
            else:
                self._add(f"{prefix}{node.name}", node, line, end_line)

    def inner(self, name: str) -> list[tuple[int, int]]:
        """The first and the last line of each unit within the body of a class or the module."""
        if name == MODULE:
            return [(each.line, each.end_line) for each in self.units.values() if each.name != name]
        if not name.startswith("<class "):
            return []
        prefix = f"{name.removeprefix('<class ').removesuffix('>')}."
        inside = (prefix, f"<class {prefix}")
        return [(u.line, u.end_line) for u in self.units.values() if u.name.startswith(inside)]

    def text(self, unit: Unit) -> list[str]:
        """The lines of a unit."""
        return self.lines[unit.line - 1 : unit.end_line]

    def form(self, name: str) -> form.Form:
        """The normal form of a function. Raises RecursionError where it is nested too deeply."""
        return tuple(map(self.forms.of, self.units[name].nodes))

    def entries(self, name: str) -> list[list[BodyStatement]]:
        """The statements of a class or of the module, without the functions that may stand
        anywhere in it. Raises as `form`."""
        if name == MODULE:
            return [[*self._entries(self.tree.body, True, False)]]
        return [
            [
                BodyStatement("", self.forms.of_head(node)),
                *self._entries(node.body, False, form.reads_annotations(node)),
            ]
            for node in self.units[name].nodes
            if isinstance(node, ast.ClassDef)
        ]

    def _rows(self, node: ast.stmt) -> Iterator[BodyStatement]:
        """The rows of a table, each as a statement."""
        for key, value in names.table(node).items():
            yield BodyStatement("", (key, self.forms.of(value)), frozenset({key}))

    def is_table(self, node: ast.stmt) -> bool:
        """Whether a statement makes a table of which `__getattr__` of the module gives the values
        one by one, as `vllm.envs` does."""
        return GETATTR in self.units and bool(names.table(node))

    def _entries(
        self, body: list[ast.stmt], is_module: bool, keeps_annotations: bool
    ) -> Iterator[BodyStatement]:
        idle = logs.IdleStatements(None, lambda: self.has_logger)
        fixed = _fixed(body)
        for node in body:
            if is_module and imports.is_plain(node, self.imports):
                continue
            if isinstance(node, ast.AnnAssign) and node.value is None and not keeps_annotations:
                continue
            if idle(node) or (self.has_logger and logs.is_logger(node)):
                continue
            if isinstance(node, (*names.FUNCTIONS, ast.ClassDef)):
                if isinstance(node, ast.ClassDef) or node.name in fixed:
                    yield BodyStatement(node.name, ("def", node.name))
                continue
            if is_module and self.is_table(node):
                yield from self._rows(node)
                continue
            without = _Hollow().visit(deepcopy(node)) if any(definitions([node])) else node
            yield BodyStatement("", self.forms.of(without, keeps_annotations), _binds(node))


def bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a node: lists of statements."""
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def definitions(body: list[ast.stmt]) -> Iterator[names.Functions | ast.ClassDef]:
    """The functions and classes of a body, those under its conditions too."""
    for node in body:
        if isinstance(node, (*names.FUNCTIONS, ast.ClassDef)):
            yield node
        else:
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.stmt):
                    yield from definitions([part])
                elif isinstance(part, ast.ExceptHandler | ast.match_case):
                    yield from definitions(part.body)


def _binds(node: ast.stmt) -> frozenset[str]:
    """The names that a statement of a module binds; none if it may do something else too."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return frozenset()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    calls = any(isinstance(each, ast.Call) for each in names.within([node.value]))
    if calls or not all(isinstance(target, ast.Name) for target in targets):
        return frozenset()
    return frozenset(name for target in targets for name in names.binds(target))


def _fixed(body: list[ast.stmt]) -> frozenset[str]:
    """The functions of a body whose place among its statements matters: what is bound twice, used
    by another statement, or defined by running more code than the definition."""
    bound = Counter(name for node in names.within(body) for name in names.binds(node))
    found = {name for name, times in bound.items() if times > 1}
    found.update(node.id for node in names.running(body) if isinstance(node, ast.Name))
    for node in body:
        if isinstance(node, names.FUNCTIONS):
            known = all(form.decorator(each) in form.HARMLESS for each in node.decorator_list)
            if not known or not all(map(_is_constant, names.defaults(node.args))):
                found.add(node.name)
    return frozenset(found)


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    return isinstance(node, ast.Constant)


class _Hollow(ast.NodeTransformer):
    """Replaces definitions by their names: they are units of their own."""

    def visit_FunctionDef(self, node: names.Functions | ast.ClassDef) -> ast.stmt:
        return ast.Expr(ast.Name(f"def {node.name}", ast.Load()))

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef


Differing = tuple[str, frozenset[str]]
"""The name of a unit, and the names at the top of its module that it is or binds; the empty name is
the module."""


def top_of(name: str) -> str:
    """The name at the top of the module of which a unit is a part; empty for the module."""
    if name == MODULE:
        return ""
    return name.removeprefix("<class ").removesuffix(">").split(".")[0]


def differing_units(base: Module, head: Module) -> list[Differing]:
    """The units that only one side has, or that may behave differently."""
    found = [
        (name, frozenset({top_of(name)}))
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
