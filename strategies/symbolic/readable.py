"""Integer formulas as readable lines: `total == free + held + 1`."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import z3


def parts_of(formula: Any) -> Iterator[Any]:
    """The parts of a conjunction; negations are pushed inwards."""
    if z3.is_and(formula):
        for part in formula.children():
            yield from parts_of(part)
    elif z3.is_not(formula) and z3.is_or(formula.arg(0)):
        for part in formula.arg(0).children():
            yield from parts_of(z3.Not(part))
    elif z3.is_not(formula) and z3.is_not(formula.arg(0)):
        yield from parts_of(formula.arg(0).arg(0))
    elif not z3.is_true(formula):
        yield formula


def reduced(formula: Any, known: Any, valid: Callable[[Any], bool]) -> list[Any]:
    """The parts of a formula, without those that follow from the other parts and from `known`; the
    longest are removed first. Two bounds that meet are one equation."""
    parts = list(parts_of(z3.simplify(formula)))
    for part in sorted(parts, key=lambda p: -len(p.sexpr())):
        others = [p for p in parts if p is not part]
        if valid(z3.Implies(z3.And(known, *others), part)):
            parts = others
    return _joined(parts)


def _joined(parts: Sequence[Any]) -> list[Any]:
    """The parts, with each two bounds that meet replaced by one equation."""
    left = list(parts)
    found = []
    while left:
        part = left.pop(0)
        lower = _bound(part)
        for other in left:
            upper = _bound(other)
            if lower and upper and lower[0] == _times(upper[0], -1):
                left.remove(other)
                part = lower[1] == 0
                break
        found.append(part)
    return found


def _bound(part: Any) -> tuple[dict[str, int], Any] | None:
    """The sum that a bound requires to be at least 0, by its terms and as a term."""
    atom = _compared(part, True)
    if atom is None or atom[1] not in ("<=", ">="):
        return None
    sum_, sign, term = atom
    return (sum_, term) if sign == ">=" else (_times(sum_, -1), -term)


def _times(sum_: dict[str, int], factor: int) -> dict[str, int]:
    return {name: factor * n for name, n in sum_.items()}


def _sum(term: Any, factor: int, into: dict[str, int]) -> None:
    """Add a term to a sum, as the factor of each of its parts; "" stands for the number 1."""
    if z3.is_int_value(term):
        into[""] = into.get("", 0) + factor * term.as_long()
    elif z3.is_add(term):
        for part in term.children():
            _sum(part, factor, into)
    elif z3.is_sub(term):
        _sum(term.arg(0), factor, into)
        for part in term.children()[1:]:
            _sum(part, -factor, into)
    elif z3.is_app_of(term, z3.Z3_OP_UMINUS):
        _sum(term.arg(0), -factor, into)
    elif z3.is_mul(term) and z3.is_int_value(term.arg(0)) and term.num_args() == 2:
        _sum(term.arg(1), factor * term.arg(0).as_long(), into)
    else:
        name = _term(term)
        into[name] = into.get(name, 0) + factor


def _compared(atom: Any, positive: bool) -> tuple[dict[str, int], str, Any] | None:
    """A comparison as a sum (by its terms, and as a term), compared with 0. None if it is none."""
    if z3.is_not(atom):
        return _compared(atom.arg(0), not positive)
    tests = ((z3.is_le, "<="), (z3.is_ge, ">="), (z3.is_lt, "<"), (z3.is_gt, ">"), (z3.is_eq, "=="))
    sign = next((s for test, s in tests if test(atom)), None)
    if sign is None or not z3.is_int(atom.arg(0)):
        return None
    if not positive:
        sign = {"<=": ">", ">=": "<", "<": ">=", ">": "<=", "==": "!="}[sign]
    shift = {"<": 1, ">": -1}.get(sign, 0)
    term = atom.arg(0) - atom.arg(1) + shift
    sum_: dict[str, int] = {}
    _sum(term, 1, sum_)
    sum_ = {name: n for name, n in sum_.items() if n or not name}
    return sum_, {"<": "<=", ">": ">="}.get(sign, sign), term


def _comparison(sum_: dict[str, int], sign: str) -> str:
    """A sum compared with 0, written without negative terms, except a number that is alone on one
    side."""
    divisor = math.gcd(*sum_.values()) or 1
    terms = {name: n // divisor for name, n in sum_.items() if name}
    one = sum_.get("", 0) // divisor
    if terms and all(n < 0 for n in terms.values()):
        terms, one = _times(terms, -1), -one
        sign = {"<=": ">=", ">=": "<="}.get(sign, sign)
    left = [_product(n, name) for name, n in sorted(terms.items()) if n > 0]
    right = [_product(-n, name) for name, n in sorted(terms.items()) if n < 0]
    if (right and one > 0) or not left:
        left.append(str(one))
    elif one or not right:
        right.append(str(-one))
    return f"{' + '.join(left)} {sign} {' + '.join(right or ['0'])}"


def _product(factor: int, name: str) -> str:
    return name if factor == 1 else f"{factor} * {name}"


def _term(term: Any) -> str:
    """An integer term that is not a sum."""
    if z3.is_const(term):
        return str(term)
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        condition, then, otherwise = term.children()
        return f"(if {read(condition)} then {_whole(then)} else {_whole(otherwise)})"
    signs = ((z3.is_idiv, "div"), (z3.is_mod, "mod"), (z3.is_mul, "*"))
    sign = next((s for test, s in signs if test(term)), None)
    if sign is None:
        return str(term)
    return "(" + f" {sign} ".join(_factor(part) for part in term.children()) + ")"


def _whole(term: Any) -> str:
    """An integer term."""
    sum_: dict[str, int] = {}
    _sum(term, 1, sum_)
    one = sum_.pop("", 0)
    parts = [_product(n, name) for name, n in sorted(sum_.items()) if n]
    return " + ".join([*parts, str(one)] if one or not parts else parts)


def _factor(term: Any) -> str:
    text = _whole(term)
    return f"({text})" if " + " in text else text


def read(formula: Any) -> str:
    """A formula in words and infix signs. A clause with a negated equation is written as an
    implication."""
    atom = _compared(formula, True)
    if atom is not None:
        return _comparison(*atom[:2])
    if z3.is_or(formula):
        return _clause(formula.children())
    if z3.is_and(formula):
        return " and ".join(_inner(part) for part in formula.children())
    if z3.is_not(formula):
        inner = formula.arg(0)
        if z3.is_and(inner):
            return _clause([z3.Not(part) for part in inner.children()])
        if z3.is_or(inner):
            return " and ".join(_inner(z3.Not(part)) for part in inner.children())
        return read(inner.arg(0)) if z3.is_not(inner) else f"not {_inner(inner)}"
    if z3.is_eq(formula):
        return f"{_inner(formula.arg(0))} where and only where {_inner(formula.arg(1))}"
    return str(formula)


def _inner(formula: Any) -> str:
    text = read(formula)
    return text if _compared(formula, True) is not None else f"({text})"


def _clause(literals: Sequence[Any]) -> str:
    """One of these."""
    atoms = [_compared(literal, True) for literal in literals]
    denied = [n for n, atom in enumerate(atoms) if atom is not None and atom[1] == "!="]
    if len(denied) == len(literals):
        denied = denied[:-1]
    given = " and ".join(read(z3.Not(literals[n])) for n in denied)
    rest = " or ".join(_inner(part) for n, part in enumerate(literals) if n not in denied)
    return f"{given} implies {rest}" if given else rest
