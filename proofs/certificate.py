"""Certificates: every query to Z3 as a text that another solver can check.

A certificate is one SMT-LIB 2 file: the assumptions, the negated claim, and `(check-sat)`. The
answer `unsat` proves the claim. An obligation of arithmetic is one question; a claim proved by
induction is one question for the start and one for each action. Each question has its own Z3
context, as in `solve`, so a text does not depend on earlier questions.
"""

import functools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import z3

import kvproof
from kvproof.model.arithmetic.algebra import Truth
from kvproof.model.errors import UsageError
from kvproof.model.files.folders import check_empty, write_folder
from kvproof.model.planting import planted_now
from kvproof.proofs.induction import Claimed, InductionStep, steps
from kvproof.proofs.obligation import Obligation
from kvproof.proofs.prove import everything, everything_named


class CertificateQuestion(NamedTuple):
    """One question: the obligation or claim, and the step of the induction, None for arithmetic."""

    about: Obligation | Claimed
    step: InductionStep | None = None

    @property
    def name(self) -> str:
        """The id, with the action where there is one: letters, digits, `_` and dots."""
        return self.about.id if self.step is None else f"{self.about.id}.{self.step.action}"


def questions(names: Iterable[str] | None = None) -> Iterator[CertificateQuestion]:
    """The questions of the obligations and claims with these ids, or of all. Raises UsageError for
    an unknown id."""
    for name in everything() if names is None else names:
        about = everything_named(name)
        if isinstance(about, Claimed):
            yield from (CertificateQuestion(about, step) for step in steps(about.system))
        else:
            yield CertificateQuestion(about)


def certificate(question: CertificateQuestion) -> str:
    """The question as SMT-LIB 2 text; the text is deterministic. Raises UsageError if a rule does
    not run on Z3 terms."""
    about, step = question
    try:
        variables, given, denied = _formulas(question)
    except (z3.Z3Exception, TypeError) as error:
        raise UsageError(
            f"A rule that {about.id} asks for does not run on Z3 terms ({error}). "
            "Use the algebra of kvproof.model.arithmetic.algebra."
        ) from error
    return "\n".join(
        (
            f"; kvproof {kvproof.__version__}",
            f"; {about.id}" + (f", step {step.action}" if step else ""),
            f"; claimed: {' '.join(about.name.split())}",
            "; expected: unsat, that is, no numbers meet the assumptions and break the claim",
            "(set-logic ALL)",
            *(f"(declare-const {name} Int)" for name in variables),
            "; given",
            f"(assert {given})",
            "; the claim, denied",
            f"(assert {denied})",
            "(check-sat)",
            "",
        )
    )


def _formulas(question: CertificateQuestion) -> tuple[Iterable[str], str, str]:
    """The variables, the assumptions, and the negated claim."""
    about, step = question
    context = z3.Context()
    if isinstance(about, Obligation):
        claim = about.on(_variables(about.for_all, context))
        return about.for_all, _text(claim.given, context), _denied(claim.holds, context)
    assert step is not None
    holds = step.holds(about.claim, _variables(step.variables, context))
    return step.variables, _given_before(step), _denied(holds, context)


def _given_before(step: InductionStep) -> str:
    return _assumed(step, frozenset(planted_now().items()))


@functools.lru_cache(maxsize=32)
def _assumed(step: InductionStep, _mistakes: Hashable) -> str:
    """The assumptions before a step, which are the same for all claims."""
    context = z3.Context()
    return _text(step.given(_variables(step.variables, context)), context)


def _variables(names: Iterable[str], context: z3.Context) -> dict[str, Any]:
    return {name: z3.Int(name, context) for name in names}


def _text(truth: Truth, context: z3.Context) -> str:
    term = z3.BoolVal(truth, context) if isinstance(truth, bool) else truth
    return str(term.sexpr())


def _denied(truth: Truth, context: z3.Context) -> str:
    return _text(not truth if isinstance(truth, bool) else z3.Not(truth), context)


def write_certificates(folder: Path, *, names: Sequence[str] | None = None) -> int:
    """Write one file for each question into a new or empty folder. Returns the number of files.

    A new folder appears with all its files. Raises UsageError for an unknown id, and, before any
    question is made, for a folder that is not empty or cannot be written.
    """
    chosen = list(questions(names))
    check_empty(folder)
    texts = {f"{question.name}.smt2": certificate(question) for question in chosen}
    write_folder(folder, texts)
    return len(chosen)
