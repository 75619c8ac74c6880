"""Spacer, Z3's engine for inductive invariants: it finds an inductive invariant that implies a
claim.

Spacer gets a count-level system and only one of its claims. Its result is checked: a plain solver
checks that the invariant holds at the start, that every action preserves it, and that it implies
the claim; it is also evaluated on random walks. Spacer supports linear arithmetic only, so sizes
that are multipliers or divisors must have fixed values. The invariant holds for these values and
for all values of the other sizes.
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import z3

from kvproof.model.arithmetic.algebra import both, implies
from kvproof.model.arithmetic.system import System
from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.errors import UsageError, unknown
from kvproof.model.reference.rules import Rules
from kvproof.strategies.symbolic.posed import Posed
from kvproof.strategies.symbolic.query import asked
from kvproof.strategies.symbolic.readable import read, reduced
from kvproof.strategies.symbolic.walks import visited
from kvproof.strategies.verdict import Verdict

REACHED, BROKEN = "reached", "broken"
"""The relations: the reachable states, and whether one of them breaks the claim."""


class Discovered(NamedTuple):
    """The result of Spacer for a claim.

    PROVED: `invariant` has one line for each part; their conjunction is inductive. VIOLATED: `run`
    has the sizes and counts of the states from the start to one that breaks the claim on plain
    ints. UNKNOWN: `reason`. `walked` counts the states of random walks on which the invariant was
    evaluated.
    """

    verdict: Verdict
    invariant: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    reason: str = ""
    walked: int = 0
    seconds: float = 0.0


def discover(
    name: str, claim: str, fixed: Mapping[str, int], rules: Rules, *, timeout_s: float = 10.0
) -> Discovered:
    """Look for an invariant of a count-level system that implies one claim about it.

    `fixed` gives values of sizes; all other sizes are open. The time limit applies to Spacer only.
    Raises UsageError for an unknown system, claim or size, and for values that the system does not
    allow.
    """
    began = time.monotonic()
    posed = Posed(_system(name, claim, fixed, rules), claim, fixed)
    if posed.answer(posed.given) == "unsat":
        raise UsageError(
            f"The system {name} does not allow these sizes: {dict(fixed)}. Use others."
        )
    engine = z3.Fixedpoint(ctx=posed.context)
    engine.set("engine", "spacer")
    engine.set("timeout", max(1, int(timeout_s * 1000)))
    result, why = _asked(engine, posed)
    if result == "sat":
        found = _refuted(posed, engine.get_answer())
    elif result == "unsat":
        found = _checked(posed, _invariant(posed, engine.get_answer()), name, rules)
    else:
        found = Discovered(Verdict.UNKNOWN, reason=why)
    return found._replace(seconds=time.monotonic() - began)


def _asked(engine: z3.Fixedpoint, posed: Posed) -> tuple[str, str]:
    """Spacer's answer, and the reason if it is unknown."""
    try:
        result = asked(engine, _pose(engine, posed))
    except z3.Z3Exception as error:
        why = error.value.decode() if isinstance(error.value, bytes) else str(error)
        if "Uninterpreted" in why:
            return "unknown", "Spacer cannot divide by a size that is open: fix more sizes"
        return "unknown", f"Spacer gave up: {why.splitlines()[0]}"
    return result, f"Spacer gave up: {engine.reason_unknown()}" if result == "unknown" else ""


def _system(name: str, claim: str, fixed: Mapping[str, int], rules: Rules) -> System:
    there = systems(rules)
    if name not in there:
        raise unknown("count-level system", name, there)
    system = there[name]
    if claim not in system.invariants:
        raise unknown("claim", claim, system.invariants)
    for size in fixed:
        if size not in system.parameters._fields:
            raise unknown("size", size, system.parameters._fields)
    return system


def _pose(engine: z3.Fixedpoint, posed: Posed) -> Any:
    """Give the engine the system and the claim. Returns the query: can the claim be broken?"""
    integer, truth = z3.IntSort(posed.context), z3.BoolSort(posed.context)
    reached = z3.Function(REACHED, *(integer for _ in posed.variables), truth)
    broken = z3.Function(BROKEN, truth)
    engine.register_relation(reached)
    engine.register_relation(broken)
    engine.declare_var(*posed.variables)
    here = reached(*posed.variables)
    engine.rule(reached(*posed.numbers(posed.start)), [posed.given])
    for chosen, guard, then in posed.actions():
        if chosen:
            engine.declare_var(*chosen)
        engine.rule(reached(*posed.numbers(then)), [here, guard])
    engine.rule(broken(), [here, z3.Not(posed.holds(posed.state))])
    return broken()


def _terms(term: Any) -> Iterator[Any]:
    """A term and all its subterms, subterms first, each once."""
    seen: set[int] = set()
    waiting = [(term, False)]
    while waiting:
        here, done = waiting.pop()
        if done:
            yield here
        elif here.get_id() not in seen:
            seen.add(here.get_id())
            waiting.append((here, True))
            parts = [here.body()] if z3.is_quantifier(here) else here.children()
            waiting.extend((part, False) for part in reversed(parts))


def _is_reached(term: Any) -> bool:
    return bool(z3.is_app(term)) and term.decl().name() == REACHED


def _invariant(posed: Posed, answer: Any) -> Any:
    """The answer's formula for the reachable states, over the variables."""
    for term in _terms(answer):
        body = term.body() if z3.is_quantifier(term) else term
        if z3.is_eq(body) and _is_reached(body.arg(0)):
            return z3.substitute_vars(body.arg(1), *reversed(posed.variables))
    return posed.truth(True)


def _checked(posed: Posed, found: Any, name: str, rules: Rules) -> Discovered:
    """The invariant, if a plain solver and the walks confirm it."""
    parts = reduced(found, posed.given, posed.valid)
    invariant = z3.And(*parts, posed.context) if parts else posed.truth(True)
    wrong = _not_inductive(posed, invariant)
    if wrong:
        return Discovered(Verdict.UNKNOWN, reason=f"the invariant that Spacer found fails {wrong}")
    walked = 0
    for sizes, state in visited(name, rules, fixed=posed.fixed):
        values = {**sizes._asdict(), **state._asdict()}
        plain = [(v, z3.IntVal(values[str(v)], posed.context)) for v in posed.variables]
        walked += 1
        if not z3.is_true(z3.simplify(z3.substitute(invariant, *plain))):
            reason = f"a walk breaks the invariant that Spacer found: {sizes}, {state}"
            return Discovered(Verdict.UNKNOWN, reason=reason)
    lines = sorted((read(part) for part in parts), key=lambda line: (len(line), line))
    return Discovered(Verdict.PROVED, tuple(lines), walked=walked)


def _not_inductive(posed: Posed, invariant: Any) -> str:
    """Where an invariant fails; empty if it holds at the start, every action preserves it, and it
    implies the claim."""
    if not posed.valid(implies(posed.given, posed.after(invariant, posed.start))):
        return "at the start"
    given = both(posed.given, invariant)
    for action, (_, guard, then) in zip(posed.system.actions, posed.actions(), strict=True):
        if not posed.valid(implies(both(given, guard), posed.after(invariant, then))):
            return f"after {action.name}"
    return "" if posed.valid(implies(given, posed.holds(posed.state))) else "to imply the claim"


def _refuted(posed: Posed, answer: Any) -> Discovered:
    """The run in Spacer's answer, if it is a run of the system to a state that breaks the claim."""
    doubt = Discovered(
        Verdict.UNKNOWN, reason="Spacer refutes it, but its answer is not a run of the system"
    )
    states = [
        tuple(n.as_long() for n in term.children())
        for term in _terms(answer)
        if _is_reached(term) and all(z3.is_int_value(n) for n in term.children())
    ]
    names = [str(v) for v in posed.variables]
    run = [dict(zip(names, numbers, strict=True)) for numbers in states]
    linked = (posed.leads(*pair) for pair in itertools.pairwise(run))
    if not run or not posed.starts(run[0]) or not all(linked):
        return doubt
    values = {**posed.fixed, **run[-1]}
    sizes = posed.system.parameters(*(values[n] for n in posed.system.parameters._fields))
    state = type(posed.start)(*(values[n] for n in type(posed.start)._fields))
    if not posed.system.given(sizes) or posed.system.invariants[posed.name](sizes, state):
        return doubt
    return Discovered(Verdict.VIOLATED, run=tuple(_text(at) for at in run))


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {v}" for n, v in counts.items() if v) or "nothing"
