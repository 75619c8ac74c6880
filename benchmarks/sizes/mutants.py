"""Small mutants of the rules in `counts`, and the smallest sizes at which each differs from it.

A mutant is made from the syntax tree of a rule: one operand, comparison, rounding or constant of it
is another one. Z3 says for which numbers the two differ, or that there are none. Each mutant has Z3
contexts of its own.
"""

import ast
import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import z3

from kvproof.model.arithmetic import algebra, counts
from kvproof.model.arithmetic.algebra import Num, Truth, all_of, any_of, either
from tests.functions.cases import always
from tests.functions.function import as_tuple

EFFORT = 5_000_000
"""What Z3 may spend on one question, in its own units: a slow machine gets the same answers."""

LIMITS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
"""Sizes are looked for up to these, the smallest first."""

POSITIVE = frozenset(
    ["block_size", "chunk_limit", "hit_unit", "max_tokens", "prompt", "ratio", "window"]
)
"""The numbers that are 1 or more; the others are 0 or more."""

FIXED = {"eagle_drop_blocks": (0, 1), "eagle_drop_tokens": (0, 1, 2, 3, 4)}
"""Numbers that decide in Python which formula a rule is: each value is asked about."""

OTHER_CALL = {
    "ceil_div": "div",
    "div": "ceil_div",
    "round_down": "round_up",
    "blocks_for_tokens": "full_blocks",
    "full_blocks": "blocks_for_tokens",
    "min_": "max_",
    "max_": "min_",
    "both": "either",
    "either": "both",
}
OTHER_COMPARISON = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OTHER_SIGN = {ast.Add: ast.Sub, ast.Sub: ast.Add}
DIVIDES = ("ceil_div", "div", "round_down", "blocks_for_tokens", "full_blocks")

GIVEN: dict[str, Callable[..., Truth]] = {
    "settled_tokens": lambda computed, in_flight: in_flight <= computed,
    "serves_a_hit": lambda block_size, hit_unit, **_: _multiple(hit_unit, block_size),
    "is_retained": lambda block_size, hit_unit, interval, **_: all_of(
        _multiple(hit_unit, block_size), _multiple(interval, hit_unit)
    ),
    "tokens_loaded_by_decode": lambda backoff, **_: backoff <= 1,
    "align_chunk": lambda prefill_end, known, block_size, shared_prefix_boundary, **_: all_of(
        known >= 1,
        _multiple(shared_prefix_boundary, block_size),
        either(prefill_end == known, prefill_end == known - 1),
    ),
    "tail_chunk": lambda start, tokens, boundary, tail: any_of(
        tail == 0, start >= boundary, start + tokens <= boundary
    ),
    "trim": lambda local_first, remote_first, **_: remote_first <= local_first,
}
"""What holds of the numbers of a rule besides their lowest values."""

ARGUED = {
    "align_chunk:21:56: start -> start + 1": "a boundary one token after the start is the next "
    "boundary, at which the chunk then ends anyhow",
    "align_chunk:24:31: start -> start - 1": "a start inside a block has the same block as the "
    "token before it, and no other start uses the next boundary",
    "held_tokens_loaded:5:67: 0 -> -1": "a load of fewer tokens than one is no load",
}
"""Why a mutant is equal wherever it is used, where Z3 does not decide or asks about more."""


def _multiple(number: Num, unit: Num) -> Truth:
    return counts.round_down(number, unit) == number


def _round_up(number: Num, unit: Num) -> Num:
    return counts.ceil_div(number, unit) * unit


class Mutant(NamedTuple):
    """A rule with one small change: `was` at `place` (line and column of the rule) is `instead`.
    `wrong` takes what the rule takes."""

    rule: str
    place: str
    was: str
    instead: str
    wrong: Callable[..., Any]

    @property
    def name(self) -> str:
        """The name of the mutant, one of its kind."""
        return f"{self.rule}:{self.place}: {self.was} -> {self.instead}"

    def differs(self, *given: Any, **named: Any) -> bool:
        """Whether it gives something else than the rule for these numbers, or nothing at all."""
        try:
            return bool(self.wrong(*given, **named) != RULES[self.rule](*given, **named))
        except ZeroDivisionError:
            return True


class Sizes(NamedTuple):
    """Z3's answer about a mutant: the smallest `numbers` at which it differs from its rule. None
    where it is equal for all numbers (`proved`), or where Z3 did not decide."""

    numbers: dict[str, int | bool] | None
    proved: bool

    @property
    def text(self) -> str:
        """The sizes for a reader."""
        return ", ".join(f"{name} {int(value)}" for name, value in (self.numbers or {}).items())


RULES: dict[str, Callable[..., Any]] = {
    name: function
    for name, function in vars(counts).items()
    if inspect.isfunction(function) and function.__module__ == counts.__name__
}
"""The rules of arithmetic by name."""


def mutants(rule: str) -> tuple[Mutant, ...]:
    """All mutants of a rule, in the order of its text."""
    tree = _tree(rule)
    found: dict[str, Mutant] = {}
    right = ast.unparse(tree)
    for place, (node, divisor) in enumerate(_places(tree)):
        for other in _others(node, divisor, kinds(rule)):
            changed = copy.deepcopy(tree)
            target = next(n for i, (n, _) in enumerate(_places(changed)) if i == place)
            _replace(changed, target, other)
            text = ast.unparse(changed)
            if text != right and text not in found:
                was, instead = ast.unparse(node), ast.unparse(other)
                wrong = _made(changed)
                at = f"{node.lineno}:{node.col_offset}"
                found[text] = Mutant(rule, at, was, instead, wrong)
    return tuple(found.values())


def smallest(mutant: Mutant) -> Sizes:
    """The smallest sizes at which a mutant differs from its rule, by Z3."""
    fixed = [name for name in kinds(mutant.rule) if name in FIXED]
    values = itertools.product(*(FIXED[name] for name in fixed))
    questions = [_Question(mutant, dict(zip(fixed, each, strict=True))) for each in values]
    for limit in (*LIMITS, None):
        answers = set()
        for question in questions:
            answer, numbers = question.ask(limit)
            if numbers:
                return Sizes(numbers, False)
            answers.add(answer)
    return Sizes(None, answers == {"unsat"})


class _Question:
    """Whether a mutant differs from its rule, with these values for the numbers that are
    `FIXED`."""

    def __init__(self, mutant: Mutant, fixed: Mapping[str, int]) -> None:
        self.context = z3.Context()
        self.fixed = fixed
        self.free = {
            name: z3.Bool(name, self.context) if kind == "Truth" else z3.Int(name, self.context)
            for name, kind in kinds(mutant.rule).items()
            if name not in fixed
        }
        given = {**self.free, **fixed}
        right, wrong = (as_tuple(f(**given)) for f in (RULES[mutant.rule], mutant.wrong))
        self.numbers = [v for v in self.free.values() if z3.is_int(v)]
        self.claims = [v >= int(str(v) in POSITIVE) for v in self.numbers]
        self.claims.append(GIVEN.get(mutant.rule, always)(**given))
        self.claims.append(any_of(*(a != b for a, b in zip(right, wrong, strict=True))))

    def ask(self, limit: int | None) -> tuple[str, dict[str, int | bool]]:
        """Z3's answer for numbers up to a limit, and such numbers."""
        solver = z3.Solver(ctx=self.context)
        solver.set("random_seed", 0)
        solver.set("rlimit", EFFORT)
        solver.add(*self.claims, *(v <= limit for v in self.numbers if limit is not None))
        answer = str(solver.check())
        if answer != "sat":
            return answer, {}
        model = solver.model()
        found = {name: model.eval(v, model_completion=True) for name, v in self.free.items()}
        numbers = {n: v.as_long() if z3.is_int(v) else z3.is_true(v) for n, v in found.items()}
        return answer, {**numbers, **self.fixed}


@functools.cache
def _tree(rule: str) -> ast.FunctionDef:
    """The syntax tree of a rule, without its docstring."""
    tree = ast.parse(inspect.getsource(RULES[rule])).body[0]
    assert isinstance(tree, ast.FunctionDef)
    del tree.body[0]
    return tree


def kinds(rule: str) -> dict[str, str]:
    """The numbers that a rule takes, each with its kind: Num, Truth or int."""
    arguments = _tree(rule).args.args
    return {a.arg: a.annotation.id for a in arguments if isinstance(a.annotation, ast.Name)}


def _places(tree: ast.FunctionDef) -> Iterator[tuple[ast.expr, bool]]:
    """The expressions of the rule in their order, and whether each divides."""
    by = {
        id(node.args[1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in DIVIDES
    }
    for statement in tree.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.expr):
                yield node, id(node) in by


def _others(node: ast.expr, divides: bool, kinds: Mapping[str, str]) -> Iterator[ast.expr]:
    """What may stand in the place of an expression, as small mistakes."""
    match node:
        case ast.Call(ast.Name(name)) if name in OTHER_CALL:
            yield ast.Call(ast.Name(OTHER_CALL[name]), node.args, node.keywords)
        case ast.BinOp(left, op, right) if type(op) in OTHER_SIGN:
            yield ast.BinOp(left, OTHER_SIGN[type(op)](), right)
        case ast.Compare(left, [op], [right]) if type(op) in OTHER_COMPARISON:
            yield ast.Compare(left, [OTHER_COMPARISON[type(op)]()], [right])
        case ast.Constant(int(value)) if not isinstance(value, bool):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Name(name, ast.Load()) if kinds.get(name) == "Num":
            yield ast.BinOp(node, ast.Add(), ast.Constant(1))
            if not divides:
                yield ast.BinOp(node, ast.Sub(), ast.Constant(1))
            fitting = [n for n, k in kinds.items() if k == "Num" and (n in POSITIVE or not divides)]
            after = [n for n in (*fitting[fitting.index(name) + 1 :], *fitting) if n != name]
            yield from (ast.Name(other) for other in after[:1])


def _replace(tree: ast.AST, target: ast.expr, other: ast.expr) -> None:
    """Put an expression in the place of another."""
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if value is target:
                setattr(node, field, other)
            elif isinstance(value, list) and any(v is target for v in value):
                setattr(node, field, [other if v is target else v for v in value])


def _made(tree: ast.FunctionDef) -> Callable[..., Any]:
    """The function of a syntax tree. What it calls are the rules as they are."""
    names = {**vars(counts), "__name__": __name__ + " made", "round_up": _round_up}
    names |= {name: getattr(algebra, name) for name in OTHER_CALL if hasattr(algebra, name)}
    exec(ast.unparse(tree), names)
    made: Callable[..., Any] = names[tree.name]
    return made
