"""The operands of changed conditions, and the values that they had.

A statement may be executed in each run, and its condition may always have one value. Then its
change may have done nothing yet. The operands of a condition are the parts that `and`, `or` and
`not` join. Each should be true once and false once: these are its outcomes. A value with which a
function does no more than raise an exception or log is not waited for, and an assertion is no
condition.

The conditions around changed statements are known too. Where one of their operands was constant, it
says why a statement was never executed.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from kvproof.gate.source.statements import Lines, of, refusals
from kvproof.gate.source.units import Module, bodies

MARK = "?"
"""Before the number of an operand, in a key."""

TESTS = (ast.If, ast.While, ast.IfExp)


class Place(NamedTuple):
    """Where an operand stands in a program: the field of a node, and where in the list there.
    With a value that is in `then` the whole condition is true, or is false; with another the next
    operand decides."""

    owner: ast.AST
    field: str
    at: int | None
    then: dict[bool, bool]

    @property
    def node(self) -> ast.expr:
        """The operand."""
        found = getattr(self.owner, self.field)
        operand: ast.expr = found if self.at is None else found[self.at]
        return operand

    def put(self, node: ast.expr) -> None:
        """Put something in the place of the operand."""
        if self.at is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.at] = node


def conditions(tree: ast.AST) -> Iterator[tuple[ast.AST, list[Place]]]:
    """The conditions of a program in a fixed order, each with the node that it belongs to and with
    its operands."""
    within: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            within.update(ast.walk(node.test))
        if isinstance(node, TESTS):
            yield node, [*_operands(Place(node, "test", None, WHOLE), within)]
        elif isinstance(node, ast.comprehension):
            for index in range(len(node.ifs)):
                yield node, [*_operands(Place(node, "ifs", index, WHOLE), within)]
        elif isinstance(node, ast.BoolOp) and node not in within:
            # Nothing asks whether the last operand of a value is true.
            found = [*_operands(Place(ast.Expr(node), "value", None, WHOLE), within)]
            yield node, [each for each in found if each.node is not _last(node)]


WHOLE = {True: True, False: False}


def _last(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.BoolOp):
        node = node.values[-1]
    return node


def _operands(place: Place, within: set[ast.AST]) -> Iterator[Place]:
    """The operands of what stands at a place. The nodes that join them are added to `within`."""
    node = place.node
    if isinstance(node, ast.BoolOp):
        within.add(node)
        ends = isinstance(node.op, ast.Or)
        for index in range(len(node.values)):
            last = index == len(node.values) - 1
            then = {v: place.then[v] for v in place.then if last or v is ends}
            yield from _operands(Place(node, "values", index, then), within)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        then = {not value: whole for value, whole in place.then.items()}
        yield from _operands(Place(node, "operand", None, then), within)
    elif not isinstance(node, ast.Constant):
        yield place


Role = tuple[str, tuple[tuple[bool, bool], ...]]
"""What an operand says, and what its values decide."""


class Operand(NamedTuple):
    """An operand of a condition: its key, its line, which is negative on base, its text, and the
    values that are waited for. A value in `then` decides whether the condition is true."""

    key: str
    line: int
    text: str
    awaited: tuple[bool, ...]
    then: tuple[tuple[bool, bool], ...] = ()

    @property
    def role(self) -> Role:
        """What it says and decides."""
        return self.text, self.then

    def had(self, value: bool) -> str:
        """The key of a run in which it had this value."""
        return outcome(self.key, value)


class Condition(NamedTuple):
    """A condition with the operands that it joins. `guarded` are the lines of head, or the negative
    lines of base, that are executed only where it is true, or only where it is false."""

    operands: tuple[Operand, ...]
    guarded: frozenset[int]

    def without(self, moved: Collection[Role]) -> "Condition":
        """The condition, in which nothing is waited for of operands that were only moved."""
        return self._replace(
            operands=tuple(
                each._replace(awaited=()) if each.role in moved else each for each in self.operands
            )
        )

    def unseen(self, reached: Collection[str]) -> list[Operand]:
        """The operands that have not had each value which is waited for."""
        return [e for e in self.operands if any(e.had(v) not in reached for v in e.awaited)]

    def constant(self, reached: Collection[str]) -> list[str]:
        """The operands that always had the same value, in words."""
        values = {e: [v for v in (True, False) if e.had(v) in reached] for e in self.operands}
        return [
            f"{line_of(each.line)}: `{each.text}` was always {had[0]}"
            for each, had in values.items()
            if len(had) == 1
        ]


def moved(conditions: Sequence[Condition]) -> set[Role]:
    """The operands that are waited for on base and on head: they stand elsewhere, and decide the
    same. The rest of what changed around them is waited for."""
    awaited = [o for each in conditions for o in each.operands if o.awaited]
    base = {each.role for each in awaited if each.line < 0}
    head = {each.role for each in awaited if each.line > 0}
    return base & head


def line_of(line: int) -> str:
    """A line of head, or a negative one of base, in words."""
    return f"line {line}" if line > 0 else f"line {-line} of base"


def outcome(key: str, value: bool) -> str:
    """The key of a run in which an operand had a value."""
    return f"{key}={value}"


def number_of(key: str) -> int:
    """The number of an operand in its file."""
    return int(key.rpartition(MARK)[2])


class Conditions:
    """The conditions of a file. `sign` is -1 on base."""

    def __init__(self, file: str, module: Module, sign: int) -> None:
        self._file, self._module, self.sign = file, module, sign

    def of(self, changed: Collection[int], alone: bool = False) -> Iterator[Condition]:
        """The conditions of which one of these lines is changed, and those around these lines, of
        which nothing is waited for. If these lines are `alone`, the other side has nothing in their
        place: where all of a statement with a condition is among them, the value with which it does
        nothing is what the other side does, and is not waited for."""
        for node, lines, places, first in self._all:
            guarded = _guarded(node)
            if not lines.isdisjoint(changed):
                whole = isinstance(node, ast.If) and {*_lines(node)}.issubset(changed)
                idle = alone and whole and not getattr(node, "orelse", ())
                awaited = [tuple(self._awaited(node, place, idle)) for place in places]
            elif guarded.isdisjoint(changed):
                continue
            else:
                awaited = [()] * len(places)
            found = zip(places, awaited, strict=True)
            operands = (self._operand(*each, n) for n, each in enumerate(found, first))
            yield Condition(tuple(operands), frozenset(self.sign * line for line in guarded))

    @cached_property
    def _all(self) -> list[tuple[ast.AST, frozenset[int], list[Place], int]]:
        """Each condition of a statement that does something: its node, its lines, its operands, and
        the number of the first of these in the file."""
        units = self._module.units.values()
        busy = {line for unit in units for lines in of(self._module, unit) for line in lines}
        found, number = [], 0
        for node, places in conditions(self._module.tree):
            lines = frozenset(line for place in places for line in _lines(place.node))
            if lines & busy:
                found.append((node, lines, places, number))
            number += len(places)
        return found

    @cached_property
    def refusals(self) -> frozenset[int]:
        """The lines of what only raises or logs."""
        return refusals(self._module)

    @cached_property
    def _after(self) -> dict[ast.AST, ast.stmt]:
        """The statement that follows another in its block."""
        blocks = (body for node in ast.walk(self._module.tree) for body in bodies(node))
        return {one: other for body in blocks for one, other in pairwise(body)}

    def _awaited(self, node: ast.AST, place: Place, idle: bool) -> Iterator[bool]:
        """The values of an operand with which more happens than a refusal; than nothing, where the
        statement is `idle` if its condition is false."""
        for value in (True, False):
            whole = place.then.get(value)
            nothing = idle and whole is False
            if not (nothing or (whole is not None and self._refuses(node, whole))):
                yield value

    def _refuses(self, node: ast.AST, true: bool) -> bool:
        """Whether a statement only raises or logs where its condition is true, or false."""
        if not isinstance(node, ast.If):
            return False
        after = self._after.get(node)
        block = node.body if true else node.orelse or ([after] if after is not None else [])
        return bool(block) and all(each.lineno in self.refusals for each in block)

    def _operand(self, place: Place, awaited: tuple[bool, ...], number: int) -> Operand:
        line = self.sign * place.node.lineno
        key = f"{self._file}:@{line}{MARK}{number}"
        text, then = ast.unparse(place.node), tuple(sorted(place.then.items()))
        return Operand(key, line, text, awaited, then)


def _guarded(node: ast.AST) -> frozenset[int]:
    """The lines of the blocks that a condition guards."""
    blocks = [*bodies(node)] if isinstance(node, ast.If | ast.While) else []
    return frozenset(line for block in blocks for each in block for line in _lines(each))


def _lines(node: ast.stmt | ast.expr) -> Lines:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
