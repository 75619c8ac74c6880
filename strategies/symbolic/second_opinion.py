"""A second solver checks all claims that Z3 proves.

Claims that Z3 refutes need no second check: their numbers break the claim on plain ints.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvproof.model.finding import Finding
from kvproof.model.reference.rules import Rules
from kvproof.strategies.symbolic.certificate import certificate, questions
from kvproof.strategies.symbolic.cross import (
    AGREES,
    DISAGREES,
    UNKNOWN,
    Opinion,
    solver_library,
)
from kvproof.strategies.symbolic.cross_process import other
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.verdict import Outcome, Verdict

FINDING = "second_opinion"
"""The id of the finding of a disagreement, in place of the id of an invariant."""


class Checked(NamedTuple):
    """The answers of cvc5 to the questions of one proof, by the question's name."""

    id: str
    opinions: dict[str, Opinion]

    def names(self, answer: str) -> list[str]:
        """The questions with this answer."""
        return [name for name, opinion in self.opinions.items() if opinion.answer == answer]

    @property
    def answer(self) -> str:
        """The combined answer: it disagrees if it disagrees on one question; otherwise it is
        unknown if one is unknown; otherwise it agrees."""
        return next((a for a in (DISAGREES, UNKNOWN) if self.names(a)), AGREES)

    @property
    def text(self) -> str:
        """The answer in words, with the questions on which cvc5 does not agree."""
        if self.answer == AGREES:
            return "cvc5 agrees"
        about = self.names(self.answer)
        count = f"{len(about)} of {len(self.opinions)}"
        if self.answer == UNKNOWN:
            return f"second opinion: unknown for {count} ({', '.join(about)})"
        return f"cvc5 DISAGREES on {count} ({', '.join(about)})"


def cross_check(
    proofs: Sequence[Proof],
    rules: Rules,
    *,
    timeout_s: float = 10.0,
    progress: Callable[[Checked], None] | None = None,
) -> list[Checked]:
    """Give cvc5 each question of each proof, at most `timeout_s` seconds for each question. Raises
    UsageError if cvc5 is missing."""
    solver_library()
    found = []
    with other() as cvc5:
        for proof in proofs:
            if proof.verdict is not Verdict.PROVED:
                continue
            opinions = {
                q.name: cvc5.second_opinion(certificate(q, rules), timeout_s)
                for q in questions([proof.id])
            }
            found.append(Checked(proof.id, opinions))
            if progress is not None:
                progress(found[-1])
    return found


def counts_by_answer(checked: Sequence[Checked]) -> dict[str, int]:
    """The number of questions by answer."""
    answers = [opinion.answer for each in checked for opinion in each.opinions.values()]
    return {"questions": len(answers)} | {a: answers.count(a) for a in (AGREES, UNKNOWN, DISAGREES)}


def with_opinions(found: Outcome, checked: Sequence[Checked]) -> Outcome:
    """The outcome, VIOLATED where cvc5 disagrees: then one of the two solvers is wrong."""
    for each in checked:
        for name in each.names(DISAGREES):
            numbers = each.opinions[name].numbers
            facts = (
                f"Z3 says that nothing breaks {name}",
                f"cvc5 says that this does: {', '.join(f'{n} = {v}' for n, v in numbers.items())}",
                "so one of the two solvers is wrong, and nothing is proved",
            )
            finding = Finding(FINDING, facts)
            return dataclasses.replace(found, verdict=Verdict.VIOLATED, finding=finding)
    return found
