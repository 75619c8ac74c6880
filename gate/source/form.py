"""The normal form of code: two functions with the same form do the same.

It is the bytecode that Python makes of the code without documentation, log calls, annotations that
nobody reads, and decorators that nobody but a type checker reads. Locals may be renamed there.
Parameters keep their names, because callers may use them as keywords, and so do nested functions
and classes, and everything in a class body. A name that a module imports stands for what was
imported.
"""

import ast
import dis
import warnings
from collections.abc import Iterator, Mapping
from copy import deepcopy
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

from kvproof.gate.source import logs, names

HARMLESS = frozenset(
    {
        *("property", "staticmethod", "classmethod", "override", "overload", "abstractmethod"),
        *("cache", "lru_cache", "cached_property", "contextmanager", "asynccontextmanager"),
        *("setter", "getter", "deleter", "wraps", "inference_mode", "no_grad", "final"),
    }
)
"""Decorators that do not read annotations, by the last part of their names."""

LOOKS_AT_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "globals"})
"""Functions that can see the names of locals."""

LOOKS_AT_AN_OBJECT = frozenset({"vars", "dir"})
"""Those of `LOOKS_AT_NAMES` that see the names of an object instead, if they are called with
one."""

LOCALS = frozenset((*dis.haslocal, *dis.hasfree))

OF_MODULE = frozenset(f"{do}_{what}" for do in ("LOAD", "STORE") for what in ("NAME", "GLOBAL"))
"""The instructions that may name what a module binds."""

Form = Any
"""Nested tuples of plain values, to be compared."""


def decorator(node: ast.expr) -> str:
    """The last part of the name of a decorator, or an empty text."""
    called = node.func if isinstance(node, ast.Call) else node
    return (names.chain(called) or ("",))[-1]


def reads_annotations(node: names.Functions | ast.ClassDef) -> bool:
    """Whether something may read the annotations of a function or of the fields of a class."""
    if isinstance(node, ast.ClassDef):
        return bool(node.decorator_list or node.bases or node.keywords)
    return any(decorator(each) not in HARMLESS for each in node.decorator_list)


class Forms:
    """Makes the forms of one module. `imports` are the names that it imports, with what each
    stands for."""

    def __init__(self, imports: Mapping[str, str], has_logger: bool) -> None:
        self.imports = imports
        self.has_logger = has_logger

    def of(self, node: ast.AST, keeps_annotations: bool = False) -> Form:
        """The form of one function, of one statement of a module or a class body, or of a value."""
        plain = _Plain(self, node, keeps_annotations).visit(deepcopy(node))
        if isinstance(plain, ast.expr):  # else a constant would be left out
            plain = ast.Assign([ast.Name("value", ast.Store())], plain)
        program = ast.Module([plain] if plain is not None else [], [])
        for each in ast.walk(program):  # how lines are broken says nothing
            vars(each).update(dict.fromkeys(each._attributes, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(program, "", "exec", dont_inherit=True)
        keeps = None if _looks_at_names(node) else frozenset(_parameters(code))
        return _Bytecode(self.imports, keeps).form(code)

    def of_head(self, node: ast.ClassDef) -> Form:
        """The form of a class without its body."""
        head = deepcopy(node)
        head.body = [ast.Pass()]
        return self.of(head)

    def idle(self, node: ast.AST) -> logs.IdleStatements:
        """Finds statements in some code that do nothing."""
        return logs.IdleStatements(node, lambda: self.has_logger and not _binds(node, "logger"))

    def is_mark(self, called: ast.expr) -> bool:
        """Whether a decorator does nothing."""
        first, *rest = names.chain(called) or ("",)
        module, _, attribute = ".".join((self.imports.get(first, ""), *rest)).partition(":")
        if not attribute:
            module, _, attribute = module.rpartition(".")
        return (module, attribute) in names.MARKS


class _Plain(ast.NodeTransformer):
    """Leaves out what does nothing. `keeps` says whether something reads the annotations of the
    fields here; in a function nothing does."""

    def __init__(self, forms: Forms, node: ast.AST, keeps: bool) -> None:
        self.forms = forms
        self.idle = forms.idle(node)
        self.keeps: bool | None = keeps

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """A node without idle statements."""
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body:
                busy = [each for each in body if not self.idle(each)]
                setattr(node, name, busy or ([] if name == "orelse" else [ast.Pass()]))
        return super().generic_visit(node)

    def visit_FunctionDef(self, node: names.Functions) -> ast.AST:
        """A function without annotations, unless something may read them."""
        if not reads_annotations(node):
            node.returns = None
            for each in ast.walk(node.args):
                if isinstance(each, ast.arg):
                    each.annotation = None
        return self._inner(node, None)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class, with the annotations of its fields where something may read them."""
        return self._inner(node, reads_annotations(node))

    def _inner(self, node: names.Functions | ast.ClassDef, keeps: bool | None) -> ast.AST:
        marks = [each for each in node.decorator_list if self.forms.is_mark(each)]
        node.decorator_list = [each for each in node.decorator_list if each not in marks]
        before, self.keeps = self.keeps, keeps
        found = self.generic_visit(node)
        self.keeps = before
        return found

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        """An assignment. In a function an annotation alone makes a name a local."""
        if self.keeps is None:
            node.annotation = ast.Constant(None)
        elif not self.keeps:
            if node.value is None:
                return None
            return self.generic_visit(ast.Assign([node.target], node.value))
        return self.generic_visit(node)


class _Bytecode:
    """Makes the forms of compiled code. The names in `keeps` are not replaced; none is where it is
    None."""

    def __init__(self, imports: Mapping[str, str], keeps: frozenset[str] | None) -> None:
        self.imports = imports
        self.keeps = keeps
        self.shared: dict[str, str] = {}

    def form(self, code: CodeType) -> Form:
        """The form of a program, of a function or of the body of a class."""
        own: dict[str, str] = {}
        closed = {*code.co_cellvars, *code.co_freevars}

        def local(name: str) -> str:
            if self.keeps is None or name in self.keeps:
                return name
            known, mark = (self.shared, "&") if name in closed else (own, "$")
            return known.setdefault(name, f"{mark}{len(known)}")

        rows = []
        for each in dis.get_instructions(code):
            value = each.argval
            if each.opcode in LOCALS:
                value = tuple(map(local, value)) if isinstance(value, tuple) else local(value)
            elif each.opname in OF_MODULE:
                value = self.imports.get(value, value)
            elif each.opcode in dis.hasconst and each.arg is not None:
                value = self._constant(code.co_consts[each.arg])
            rows.append((each.opname, value))
        kinds = code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount
        return (code.co_name, kinds, _given(code), code.co_exceptiontable, tuple(rows))

    def _constant(self, value: object) -> Form:
        if isinstance(value, CodeType):
            return self.form(value)
        if isinstance(value, frozenset):  # in what order Python shows one says nothing
            return ("frozenset", tuple(sorted(map(repr, value))))
        if isinstance(value, tuple):
            return tuple(map(self._constant, value))
        return (type(value).__name__, repr(value))


def _given(code: CodeType) -> tuple[str, ...]:
    """The names of the parameters of a function."""
    rest = sum(bool(code.co_flags & flag) for flag in (CO_VARARGS, CO_VARKEYWORDS))
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + rest]


def _parameters(code: CodeType) -> Iterator[str]:
    """The names of all parameters in a program."""
    yield from _given(code)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _parameters(each)


def _looks_at_names(node: ast.AST) -> bool:
    """Whether some code can see the names of its locals."""
    mentions = calls_with_object = 0
    for each in names.walk(node):
        if isinstance(each, ast.Name):
            mentions += each.id in LOOKS_AT_NAMES
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            # `vars(*found)` may have no object.
            given = any(not isinstance(one, ast.Starred) for one in each.args)
            calls_with_object += given and each.func.id in LOOKS_AT_AN_OBJECT
    return mentions > calls_with_object


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a function, or one inside it, has a parameter or a local of this name."""
    return any(
        (isinstance(each, ast.arg) and each.arg == name)
        or (name in names.binds(each) and not isinstance(each, names.FUNCTIONS))
        for each in names.walk(node)
    )
