"""Statements that do nothing: documentation, `pass`, what only a type checker reads, and log calls.

A log call does nothing where its arguments have no effect and raise nothing: constants, names, and
the attributes that the same function reads elsewhere too. A new log call with another attribute is
a change, because it may raise.
"""

import ast
from collections.abc import Callable
from functools import cached_property

from kvproof.gate.source.names import chain, children

LEVELS = frozenset(
    {"debug", "info", "warning", "warn", "error", "exception", "critical", "log"}
    | {f"{level}_once" for level in ("debug", "info", "warning", "error")}
)
OF_MODULE = "the logger of the module"
"""What `logger` stands for where the module makes it."""

READS = frozenset({"len", "str", "repr", "type", "bool", "id"})
"""Built-in functions that an argument of a log call may use."""


def for_types_only(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:` without an `else`."""
    tests = (("TYPE_CHECKING",), ("typing", "TYPE_CHECKING"))
    return isinstance(node, ast.If) and chain(node.test) in tests


def is_logger(node: ast.stmt) -> bool:
    """Whether a statement of a module makes its logger."""
    return (
        isinstance(node, ast.Assign)
        and [chain(target) for target in node.targets] == [("logger",)]
        and isinstance(node.value, ast.Call)
        and chain(node.value.func)[-1:] in (("init_logger",), ("getLogger",))
    )


def logs(node: ast.AST) -> bool:
    """Whether a statement is a call of the logger."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    name = chain(node.value.func)
    return len(name) == 2 and name[0] == "logger" and name[1] in LEVELS


def _only_logs(node: ast.AST) -> bool:
    """Whether a statement is a log call, or a condition for log calls alone."""
    if isinstance(node, ast.If):
        return all(map(_only_logs, (*node.body, *node.orelse)))
    return isinstance(node, ast.Pass) or logs(node)


def reads(node: ast.AST) -> frozenset[tuple[str, ...]]:
    """The names and the attributes that some code uses outside its log calls and their
    conditions."""
    found: set[tuple[str, ...]] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if not _only_logs(each):
            if parts := chain(each):
                found.add(parts)
            stack += children(each)
    return frozenset(found)


class IdleStatements:
    """Finds the statements in some code that do nothing. `logger` is whether `logger` is the logger
    of the module there: without it no call is a log call."""

    def __init__(self, node: ast.AST | None, logger: Callable[[], bool]) -> None:
        self.node = node
        self.logger = logger

    @cached_property
    def has_logger(self) -> bool:
        return self.logger()

    @cached_property
    def read(self) -> frozenset[tuple[str, ...]]:
        """What the code reads outside its log calls."""
        return frozenset() if self.node is None else reads(self.node)

    def __call__(self, node: ast.stmt) -> bool:
        """Whether a statement does nothing."""
        if isinstance(node, ast.Pass):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return True
        if isinstance(node, ast.If):
            if for_types_only(node) and not node.orelse:
                return True
            return all(map(self, (*node.body, *node.orelse))) and self.safe(node.test)
        return logs(node) and self.has_logger and self._safe_call(node)

    def _safe_call(self, node: ast.stmt) -> bool:
        assert isinstance(node, ast.Expr)
        assert isinstance(node.value, ast.Call)
        call = node.value
        values = (*call.args, *(word.value for word in call.keywords))
        if chain(call.func)[-1].endswith("_once"):  # it needs arguments that can be hashed
            return all(isinstance(value, ast.Constant) or self._text(value) for value in values)
        return all(map(self.safe, values))

    def _text(self, node: ast.expr) -> bool:
        return isinstance(node, ast.JoinedStr) and all(map(self.safe, node.values))

    def safe(self, node: ast.expr) -> bool:
        """Whether an expression has no effect and raises nothing that the function does not raise
        without it."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name | ast.Attribute):
            return chain(node) in self.read
        if isinstance(node, ast.FormattedValue):
            return node.format_spec is None and self.safe(node.value)
        if isinstance(node, ast.JoinedStr | ast.BoolOp):
            return all(map(self.safe, node.values))
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not) and self.safe(node.operand)
        if isinstance(node, ast.Compare):
            same = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
            return same and all(map(self.safe, (node.left, *node.comparators)))
        if isinstance(node, ast.Call):
            enabled = chain(node.func) == ("logger", "isEnabledFor") and self.has_logger
            if not enabled and not (isinstance(node.func, ast.Name) and node.func.id in READS):
                return False
            return not node.keywords and all(map(self.safe, node.args))
        return False
