"""Certificates: every query to Z3 as a text that another solver can check.

A certificate is one SMT-LIB 2 file, written from the solver that Z3 is asked with. The answer
`unsat` proves the claim. An obligation of arithmetic is one question; a claim proved by induction
is one question for the start and one for each action. Each question has its own Z3 context, as in
`solve`, so a text does not depend on earlier questions.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import z3

import kvproof
from kvproof.model.errors import UsageError
from kvproof.model.files.folders import check_empty, write_folder
from kvproof.proofs.induction import Claimed, steps
from kvproof.proofs.inductive import StepQuestion
from kvproof.proofs.obligation import Obligation
from kvproof.proofs.prove import everything, everything_named
from kvproof.proofs.solve import ClaimSearch


def certificates(names: Iterable[str] | None = None) -> Iterator[tuple[str, str]]:
    """The name and the SMT-LIB 2 text of each question about the obligations and claims with these
    ids, or about all. A name is the id, with the action where there is one: letters, digits, `_`
    and dots. The texts are deterministic. Raises UsageError for an unknown id, and if a rule does
    not run on Z3 terms."""
    chosen = [everything_named(name) for name in (everything() if names is None else names)]
    try:
        for about in chosen:
            if isinstance(about, Obligation):
                yield about.id, _text(about, "", ClaimSearch(about).solver)
            else:
                yield from _of_claim(about)
    except (z3.Z3Exception, TypeError) as error:
        raise UsageError(
            f"A rule that {about.id} asks for does not run on Z3 terms ({error}). "
            "Use the algebra of kvproof.model.arithmetic.algebra."
        ) from error


def _of_claim(about: Claimed) -> Iterator[tuple[str, str]]:
    for step in steps(about.system):
        question = StepQuestion(step, frozenset())
        text = _text(about, f", step {step.action}", question.solver(about.claim, question.before))
        yield f"{about.id}.{step.action}", text


def _text(about: Obligation | Claimed, step: str, solver: z3.Solver) -> str:
    head = (
        f"; kvproof {kvproof.__version__}",
        f"; {about.id}{step}",
        f"; claimed: {' '.join(about.name.split())}",
        "; expected: unsat, that is, no numbers meet the assumptions and break the claim",
        "(set-logic ALL)",
    )
    return "\n".join((*head, *solver.to_smt2().splitlines()[1:], ""))


def write_certificates(folder: Path, *, names: Sequence[str] | None = None) -> int:
    """Write one file for each question into a new or empty folder. Returns the number of files.

    A new folder appears with all its files. Raises UsageError for an unknown id, and, before any
    question is made, for a folder that is not empty or cannot be written.
    """
    for name in names or ():
        everything_named(name)
    check_empty(folder)
    texts = {f"{name}.smt2": text for name, text in certificates(names)}
    write_folder(folder, texts)
    return len(texts)
