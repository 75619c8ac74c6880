"""A proof obligation is one claim about the arithmetic, for all numbers in given ranges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, get_type_hints

from kvproof.model.arithmetic.algebra import Num, Truth, all_of
from kvproof.model.arithmetic.ranges import Range


class Claim(NamedTuple):
    """`holds` must be true for all numbers that are in their ranges and make `given` true."""

    holds: Truth
    given: Truth = True


@dataclass(frozen=True)
class Obligation:
    """One obligation.

    `id` is a short name and `name` a sentence that must be true. `for_all` gives the range of each
    variable. `killed_by` names a fault that refutes it; one made in a test may have none.
    `claim` is written in the algebra of `model.arithmetic.algebra`, so it runs on Z3 terms and on
    ints.
    """

    id: str
    name: str
    for_all: Mapping[str, Range]
    origin: str
    killed_by: str
    claim: Callable[..., Claim]

    @property
    def assumptions(self) -> str:
        """The ranges of all variables as one line."""
        return ", ".join(r.text(name) for name, r in self.for_all.items())

    def on(self, values: Mapping[str, Num]) -> Claim:
        """The claim about these values; `given` includes the ranges."""
        claim = self.claim(**values)
        ranges = [r.has(values[name]) for name, r in self.for_all.items()]
        return Claim(claim.holds, all_of(*ranges, claim.given))

    def broken_by(self, numbers: Mapping[str, int]) -> bool:
        """Whether these ints are allowed and break the claim."""
        claim = self.on(numbers)
        return bool(claim.given) and not claim.holds


def obligation(
    name: str, *, origin: str, killed_by: str = "", for_all: Mapping[str, Range] | None = None
) -> Callable[[Callable[..., Claim]], Obligation]:
    """Make an obligation of a function that takes one argument for each variable. The annotation of
    an argument has its range, as `Positive` has; a function that takes the variables as one mapping
    says their ranges in `for_all`."""

    def make(claim: Callable[..., Claim]) -> Obligation:
        hints = get_type_hints(claim, include_extras=True).items()
        ranges = for_all or {each: of.__metadata__[0] for each, of in hints if each != "return"}
        return Obligation(claim.__name__, name, ranges, origin, killed_by, claim)

    return make
