"""A second opinion: a certificate answered by cvc5, which shares no code with Z3.

cvc5 parses the text itself. It rarely solves divisions by variables, so it first gets a weaker
question: each `x div y` is replaced by a fresh variable `q` with `y * q <= x < y * q + y` if `y >
0`. If the weaker question is unsatisfiable, so is the certificate.
"""

import importlib
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvproof.model.errors import UsageError

AGREES, DISAGREES, UNKNOWN = "agrees", "disagrees", "unknown"


class Opinion(NamedTuple):
    """The answer of cvc5 to a certificate: it agrees that no numbers break the claim; it disagrees,
    with numbers that break the claim; or it does not know, with a reason."""

    answer: str
    reason: str
    numbers: dict[str, int]
    seconds: float


def solver_library() -> Any:
    """The cvc5 package. Raises UsageError where it is missing."""
    try:
        return importlib.import_module("cvc5")
    except ImportError as error:
        raise UsageError(
            "A second opinion needs cvc5. Write `pip install 'kvproof[cross]'` first."
        ) from error


def second_opinion(text: str, timeout_s: float) -> Opinion:
    """Give cvc5 the question of a certificate, for at most about `timeout_s` seconds: half of the
    time without division, the rest with the original text. Only numbers that break the original
    claim are a disagreement."""
    cvc5 = solver_library()
    began = time.monotonic()
    question = Asked(cvc5, text)
    weaker = without_division(cvc5, question.terms, question.assertions)
    result, numbers = question.ask(weaker, timeout_s / 2)
    if result.isSat():
        result, numbers = question.ask(
            [*question.assertions, *question.equal(numbers)], timeout_s / 4
        )
        if result.isUnsat():
            result = None
    if result is None or result.isUnknown():
        left_s = timeout_s - (time.monotonic() - began)
        result, numbers = question.ask(question.assertions, left_s)
    seconds = time.monotonic() - began
    if result.isUnknown():
        why = str(result.getUnknownExplanation()).rpartition(".")[2].lower()
        return Opinion(UNKNOWN, f"cvc5 gave up: {why}", {}, seconds)
    return Opinion(DISAGREES if result.isSat() else AGREES, "", numbers, seconds)


class Asked:
    """A certificate as cvc5 reads it: its variables and its assertions."""

    def __init__(self, cvc5: Any, text: str) -> None:
        self.cvc5, self.terms = cvc5, cvc5.TermManager()
        reader = cvc5.Solver(self.terms)
        parser = cvc5.InputParser(reader)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "certificate")
        symbols = parser.getSymbolManager()
        while not (command := parser.nextCommand()).isNull():
            if command.getCommandName() != "check-sat":
                command.invoke(reader, symbols)
        self.variables = list(symbols.getDeclaredTerms())
        self.assertions = list(reader.getAssertions())

    def ask(self, assertions: Sequence[Any], limit_s: float) -> tuple[Any, dict[str, int]]:
        """cvc5's answer in this time, and the numbers where it is `sat`."""
        solver = self.cvc5.Solver(self.terms)
        solver.setLogic("ALL")
        solver.setOption("produce-models", "true")
        solver.setOption("tlimit-per", str(max(1, int(limit_s * 1000))))
        for assertion in assertions:
            solver.assertFormula(assertion)
        result = solver.checkSat()
        if not result.isSat():
            return result, {}
        values = {str(v): solver.getValue(v).getIntegerValue() for v in self.variables}
        return result, values

    def equal(self, numbers: Mapping[str, int]) -> list[Any]:
        """Assertions that the variables have these values."""
        values = (self.terms.mkInteger(numbers[str(v)]) for v in self.variables)
        pairs = zip(self.variables, values, strict=True)
        return [self.terms.mkTerm(self.cvc5.Kind.EQUAL, *pair) for pair in pairs]


def without_division(cvc5: Any, terms: Any, assertions: Sequence[Any]) -> list[Any]:
    """Weaker assertions without division: if these are unsatisfiable, so are the original ones."""
    make, kind = terms.mkTerm, cvc5.Kind
    rewritten: dict[Any, Any] = {}
    divided: list[tuple[Any, Any, Any]] = []
    waiting = list(assertions)
    while waiting:
        term = waiting[-1]
        parts = list(term)
        missing = [part for part in parts if part not in rewritten]
        waiting.extend(missing)
        if missing:
            continue
        waiting.pop()
        new = [rewritten[part] for part in parts]
        if term.getKind() == kind.INTS_DIVISION and term not in rewritten:
            q = terms.mkConst(terms.getIntegerSort(), f"quotient_{len(divided)}")
            divided.append((*new, q))
            rewritten[term] = q
        rewritten.setdefault(term, make(term.getOp(), *new) if new else term)
    return [*(rewritten[a] for a in assertions), *_quotients(make, kind, terms, divided)]


def _quotients(make: Any, kind: Any, terms: Any, divided: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Facts about quotients by a divisor above 0: the remainder is less than the divisor, and a
    larger dividend has no smaller quotient."""
    zero = terms.mkInteger(0)
    facts = []

    def fact(divisor: Any, *parts: Any) -> None:
        facts.append(make(kind.IMPLIES, make(kind.GT, divisor, zero), make(kind.AND, *parts)))

    for x, y, q in divided:
        rest = make(kind.SUB, x, make(kind.MULT, y, q))
        fact(y, make(kind.LEQ, zero, rest), make(kind.LT, rest, y))
    for (x, y, q), (other_x, other_y, other_q) in itertools.combinations(divided, 2):
        if y == other_y:
            up = make(kind.IMPLIES, make(kind.LEQ, x, other_x), make(kind.LEQ, q, other_q))
            down = make(kind.IMPLIES, make(kind.LEQ, other_x, x), make(kind.LEQ, other_q, q))
            fact(y, up, down)
    return facts
