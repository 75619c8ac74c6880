"""What a second solver says of all that Z3 proves.

What Z3 refutes is not asked again: it comes with numbers, which break the claim on plain ints.
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
    second_opinion,
    solver_library,
)
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.verdict import Outcome, Verdict

FINDING = "second_opinion"
"""What a disagreement is called where invariants have their names."""


class Checked(NamedTuple):
    """What cvc5 says of the questions of one proof, by the question's name."""

    id: str
    opinions: dict[str, Opinion]

    def names(self, answer: str) -> list[str]:
        """The questions with this answer."""
        return [name for name, said in self.opinions.items() if said.answer == answer]

    @property
    def answer(self) -> str:
        """All of them as one: it disagrees if it does of one question, else it is unknown."""
        return next((a for a in (DISAGREES, UNKNOWN) if self.names(a)), AGREES)

    @property
    def text(self) -> str:
        """The answer in words, with the questions it is about where cvc5 does not agree."""
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
    timeout_s: float = 10.0,
    progress: Callable[[Checked], None] | None = None,
) -> list[Checked]:
    """Ask cvc5 each question of each proof, in `timeout_s` seconds at most for each question.
    Raises UsageError where cvc5 is missing."""
    solver_library()
    found = []
    for proof in proofs:
        if proof.verdict is not Verdict.PROVED:
            continue
        opinions = {
            q.name: second_opinion(certificate(q, rules), timeout_s) for q in questions([proof.id])
        }
        found.append(Checked(proof.id, opinions))
        if progress is not None:
            progress(found[-1])
    return found


def counts_by_answer(checked: Sequence[Checked]) -> dict[str, int]:
    """How many questions have which answer."""
    said = [opinion.answer for each in checked for opinion in each.opinions.values()]
    return {"questions": len(said)} | {a: said.count(a) for a in (AGREES, UNKNOWN, DISAGREES)}


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
