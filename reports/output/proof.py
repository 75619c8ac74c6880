"""The output of `prove`."""

from kvproof.reports.output.base import OutputPart, VerdictName
from kvproof.reports.output.verdict import VerdictOutput


class CounterexampleOutput(OutputPart, frozen=True, kw_only=True):
    """Sizes and counts before and after a step that breaks a claim, in words. `run` leads there
    from the start; it is empty if none was found among `looked_at` states."""

    sizes: str
    before: str
    step: str
    after: str
    run: tuple[str, ...]
    looked_at: int


class ObligationOutput(OutputPart, frozen=True, kw_only=True):
    """An obligation and its verdict. If it is VIOLATED, `numbers` break it, or `counterexample` is
    the step that refutes an induction. `cases` counts the queries, and `slowest_s` is the CPU time
    of the slowest one."""

    name: str
    sentence: str
    method: str
    verdict: VerdictName
    numbers: dict[str, int]
    counterexample: CounterexampleOutput | None
    cases: int
    seconds: float
    slowest_s: float
    reason: str


class Proved(VerdictOutput, frozen=True, kw_only=True, tag="prove"):
    """The proofs of obligations, and their number by verdict."""

    obligations: tuple[ObligationOutput, ...]
    proved: int
    violated: int
    unknown: int
