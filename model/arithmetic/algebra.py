"""A small algebra in which one formula runs on Python ints and on Z3 terms.

`counts` is written in it, so the explorer evaluates and Z3 proves the same text. Z3 is imported
only for terms of its own.
"""

import functools
from typing import Any

Num = Any
"""An `int`, or a `z3.ArithRef` of sort Int."""

Truth = Any
"""A `bool`, or a `z3.BoolRef`."""


def if_(condition: Truth, then: Any, otherwise: Any) -> Any:
    """`then` if the condition holds, else `otherwise`."""
    if isinstance(condition, bool):
        return then if condition else otherwise
    import z3

    return z3.If(condition, then, otherwise)


def min_(a: Num, b: Num) -> Num:
    """The smaller of two numbers."""
    return if_(a <= b, a, b)


def max_(a: Num, b: Num) -> Num:
    """The larger of two numbers."""
    return if_(a >= b, a, b)


def both(a: Truth, b: Truth) -> Truth:
    """Conjunction; both sides are evaluated."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a and b
    import z3

    return z3.And(a, b)


def either(a: Truth, b: Truth) -> Truth:
    """Disjunction; both sides are evaluated."""
    if isinstance(a, bool) and isinstance(b, bool):
        return a or b
    import z3

    return z3.Or(a, b)


def div(a: Num, b: Num) -> Num:
    """Floor division by a positive number (`/` on Z3 Int terms rounds the same way for a positive
    divisor)."""
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


def ceil_div(a: Num, b: Num) -> Num:
    """Division by a positive number, rounded up."""
    return div(a + b - 1, b)


def round_down(a: Num, unit: Num) -> Num:
    """The largest multiple of `unit` that is not above `a`."""
    return div(a, unit) * unit


def not_(a: Truth) -> Truth:
    """Negation."""
    if isinstance(a, bool):
        return not a
    import z3

    return z3.Not(a)


def implies(a: Truth, b: Truth) -> Truth:
    """Whether `b` holds if `a` holds; both sides are evaluated."""
    return either(not_(a), b)


def all_of(*truths: Truth) -> Truth:
    """Conjunction of any number of conditions; all are evaluated."""
    return functools.reduce(both, truths, True)


def any_of(*truths: Truth) -> Truth:
    """Disjunction of any number of conditions; all are evaluated."""
    return functools.reduce(either, truths, False)
