"""Spacer, Z3's engine for inductive invariants: from one claim it finds what else must hold.

It gets a count-level system and one claim, and none of the others. What it finds is not believed:
a plain solver checks that it holds at the start, that every action keeps it, and that the claim
follows; and it is evaluated on random walks. Spacer reads linear arithmetic only, so sizes that are
multiplied or divided by have to be fixed numbers: what is found holds for these, and all others.
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
from kvproof.strategies.symbolic.readable import read, reduced
from kvproof.strategies.symbolic.walks import visited
from kvproof.strategies.verdict import Verdict

REACHED, BROKEN = "reached", "broken"
"""The relations: the states there are, and whether one of them breaks the claim."""


class Discovered(NamedTuple):
    """What Spacer found about a claim.

    PROVED: `invariant`, one line for each part, all of them together inductive. VIOLATED: `run`,
    sizes and counts of states from the start to one that breaks the claim on plain ints. UNKNOWN:
    `reason`. `walked` counts the states of walks on which the invariant was evaluated.
    """

    verdict: Verdict
    invariant: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    reason: str = ""
    walked: int = 0
    seconds: float = 0.0


def discover(
    name: str, claim: str, rules: Rules, fixed: Mapping[str, int], timeout_s: float = 10.0
) -> Discovered:
    """Look for an invariant of a count-level system that implies one claim about it.

    `fixed` gives sizes; all others are open. The time limit is Spacer's. Raises UsageError for a
    system, a claim or a size that there is not, and for sizes that the system does not have.
    """
    began = time.monotonic()
    posed = Posed(_system(name, claim, rules, fixed), claim, fixed)
    if posed.answer(posed.given) == "unsat":
        raise UsageError(f"The system {name} has no such sizes: {dict(fixed)}. Write others.")
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
    """Spacer's answer, and why it is none."""
    try:
        result = str(engine.query(_pose(engine, posed)))
    except z3.Z3Exception as error:
        why = error.value.decode() if isinstance(error.value, bytes) else str(error)
        if "Uninterpreted" in why:
            return "unknown", "Spacer cannot divide by a size that is open: fix more sizes"
        return "unknown", f"Spacer gave up: {why.splitlines()[0]}"
    return result, f"Spacer gave up: {engine.reason_unknown()}" if result == "unknown" else ""


def _system(name: str, claim: str, rules: Rules, fixed: Mapping[str, int]) -> System:
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
    """Give the engine the system and the claim. Returns what to ask: is it broken?"""
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
    """A term and all its parts, parts first, each once."""
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
    """What the answer says of the states that are reached, about the variables."""
    for term in _terms(answer):
        body = term.body() if z3.is_quantifier(term) else term
        if z3.is_eq(body) and _is_reached(body.arg(0)):
            return z3.substitute_vars(body.arg(1), *reversed(posed.variables))
    return posed.truth(True)


def _checked(posed: Posed, found: Any, name: str, rules: Rules) -> Discovered:
    """What was found, if a plain solver and the walks agree."""
    parts = reduced(found, posed.given, posed.valid)
    invariant = z3.And(*parts, posed.context) if parts else posed.truth(True)
    wrong = _not_inductive(posed, invariant)
    if wrong:
        return Discovered(Verdict.UNKNOWN, reason=f"what Spacer found is not so {wrong}")
    walked = 0
    for sizes, state in visited(name, rules, posed.fixed):
        values = {**sizes._asdict(), **state._asdict()}
        plain = [(v, z3.IntVal(values[str(v)], posed.context)) for v in posed.variables]
        walked += 1
        if not z3.is_true(z3.simplify(z3.substitute(invariant, *plain))):
            reason = f"a walk breaks what Spacer found: {sizes}, {state}"
            return Discovered(Verdict.UNKNOWN, reason=reason)
    lines = sorted((read(part) for part in parts), key=lambda line: (len(line), line))
    return Discovered(Verdict.PROVED, tuple(lines), walked=walked)


def _not_inductive(posed: Posed, invariant: Any) -> str:
    """Where an invariant fails; empty if it holds at the start, is kept, and implies the claim."""
    if not posed.valid(implies(posed.given, posed.after(invariant, posed.start))):
        return "at the start"
    given = both(posed.given, invariant)
    for action, (_, guard, then) in zip(posed.system.actions, posed.actions(), strict=True):
        if not posed.valid(implies(both(given, guard), posed.after(invariant, then))):
            return f"after {action.name}"
    return "" if posed.valid(implies(given, posed.holds(posed.state))) else "of the claim"


def _refuted(posed: Posed, answer: Any) -> Discovered:
    """The states that the answer leads through, if they are a run to one that breaks the claim."""
    doubt = Discovered(Verdict.UNKNOWN, reason="Spacer refutes it, but its run is none")
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
    return Discovered(Verdict.VIOLATED, run=tuple(_told(at) for at in run))


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {v}" for n, v in counts.items() if v) or "nothing"
