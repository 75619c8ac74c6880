"""The normal form of code: two functions with the same form do the same.

A form has no documentation, no log calls, no annotations that nobody reads, no decorators that
nobody but a type checker reads, and no names of locals. A name that a module imports stands for
what was imported.
"""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from kvproof.gate.source import logs, names, scopes

HARMLESS = frozenset(
    {
        *("property", "staticmethod", "classmethod", "override", "overload", "abstractmethod"),
        *("cache", "lru_cache", "cached_property", "contextmanager", "asynccontextmanager"),
        *("setter", "getter", "deleter", "wraps", "inference_mode", "no_grad", "final"),
    }
)
"""Decorators that do not read annotations, by the last part of their names."""

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
        """The form of one function, or of one statement of a module or a class body."""
        reader = _Reader(self, node)
        reader.keeps_annotations = keeps_annotations
        return reader.form(node)

    def of_head(self, node: ast.ClassDef) -> Form:
        """The form of a class without its body."""
        return _Reader(self, node).head(node)

    def idle(self, node: ast.AST) -> logs.IdleStatements:
        """Finds statements in some code that do nothing."""
        return logs.IdleStatements(
            node, lambda: self.has_logger and not scopes.binds_in_function(node, "logger")
        )


class _Reader:
    def __init__(self, forms: Forms, node: ast.AST) -> None:
        self.imports = forms.imports
        self.idle = forms.idle(node)
        self.names = scopes.ScopeStack(scopes.looks_at_names(node))
        self.keeps_annotations = False

    def form(self, node: Any) -> Form:
        if isinstance(node, ast.AST):
            special = getattr(self, f"_{type(node).__name__}", None)
            return special(node) if special is not None else self._plain(node)
        if isinstance(node, list):
            if node and isinstance(node[0], ast.stmt):
                return self._body(node)
            return tuple(map(self.form, node))
        return node

    def _plain(self, node: ast.AST) -> Form:
        fields = (getattr(node, field, None) for field in node._fields)
        return (type(node).__name__, *map(self.form, fields))

    def _body(self, body: Iterable[ast.stmt]) -> Form:
        return tuple(self.form(each) for each in body if not self._dropped(each))

    def _dropped(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return not self.keeps_annotations
        return self.idle(node)

    def _within(self, scope: scopes.NameScope, *parts: Any) -> Form:
        self.names.scopes.append(scope)
        try:
            return tuple(map(self.form, parts))
        finally:
            self.names.scopes.pop()

    def _Constant(self, node: ast.Constant) -> Form:
        return (type(node.value).__name__, repr(node.value))

    def _Name(self, node: ast.Name) -> Form:
        name = self.names.of(node.id)
        if name is None:
            return ("global", self.imports.get(node.id, node.id), type(node.ctx).__name__)
        return ("local", name, type(node.ctx).__name__)

    def _ExceptHandler(self, node: ast.ExceptHandler) -> Form:
        name = node.name and (self.names.of(node.name) or node.name)
        return ("except", self.form(node.type), name, self._body(node.body))

    def _AnnAssign(self, node: ast.AnnAssign) -> Form:
        if self.keeps_annotations or node.value is None:
            return self._plain(node)
        return self._plain(ast.Assign(targets=[node.target], value=node.value))

    def _FunctionDef(self, node: names.Functions) -> Form:
        outside = tuple(map(self.form, (self._decorators(node), names.defaults(node.args))))
        kept, self.keeps_annotations = self.keeps_annotations, reads_annotations(node)
        arguments = self._arguments(node.args)
        returns = ast.dump(node.returns) if self.keeps_annotations and node.returns else None
        self.keeps_annotations = False
        scope = scopes.of_body(names.parameters(node.args), node.body)
        body = self._within(scope, node.body)
        self.keeps_annotations = kept
        more = tuple(map(ast.dump, getattr(node, "type_params", ())))
        return (type(node).__name__, node.name, outside, arguments, returns, body, more)

    _AsyncFunctionDef = _FunctionDef

    def _Lambda(self, node: ast.Lambda) -> Form:
        outside = tuple(map(self.form, names.defaults(node.args)))
        scope = scopes.of_body(names.parameters(node.args), [ast.Expr(node.body)])
        return ("Lambda", outside, self._arguments(node.args), self._within(scope, node.body))

    def _arguments(self, args: ast.arguments) -> Form:
        """The parameters without their default values, and which of them have one."""
        groups = (args.posonlyargs, args.args, args.kwonlyargs)
        rest = tuple(self._argument(each) for each in (args.vararg, args.kwarg))
        required = tuple(value is None for value in args.kw_defaults)
        by_kind = tuple(tuple(map(self._argument, group)) for group in groups)
        return (by_kind, rest, len(args.defaults), required)

    def _argument(self, node: ast.arg | None) -> Form:
        if node is None or not self.keeps_annotations or node.annotation is None:
            return node and node.arg
        return (node.arg, ast.dump(node.annotation))

    def _ClassDef(self, node: ast.ClassDef) -> Form:
        outside = self.head(node)
        kept, self.keeps_annotations = self.keeps_annotations, reads_annotations(node)
        body = self._within(scopes.of_class(node.body), node.body)
        self.keeps_annotations = kept
        return ("ClassDef", node.name, outside, body)

    def head(self, node: ast.ClassDef) -> Form:
        """The form of a class without its body."""
        return tuple(map(self.form, (self._decorators(node), node.bases, node.keywords)))

    def _decorators(self, node: names.Functions | ast.ClassDef) -> list[ast.expr]:
        """The decorators that do something."""
        return [each for each in node.decorator_list if not self._is_mark(names.chain(each))]

    def _is_mark(self, called: tuple[str, ...]) -> bool:
        first, *rest = called or ("",)
        module, _, attribute = ".".join((self.imports.get(first, ""), *rest)).partition(":")
        if not attribute:
            module, _, attribute = module.rpartition(".")
        return (module, attribute) in names.MARKS

    def _Nonlocal(self, node: ast.Nonlocal) -> Form:
        return ("Nonlocal", *(self.names.of(name) or name for name in node.names))

    def _comprehension(self, node: Any) -> Form:
        first = self.form(node.generators[0].iter)
        scope = scopes.of_targets(node.generators)
        fields = ("elt", "key", "value")
        values = [getattr(node, field) for field in fields if hasattr(node, field)]
        rest = [
            (each.target, each.iter if number else None, each.ifs, each.is_async)
            for number, each in enumerate(node.generators)
        ]
        parts = self._within(scope, *(part for each in rest for part in each), *values)
        return (type(node).__name__, first, parts)

    _ListComp = _SetComp = _DictComp = _GeneratorExp = _comprehension
