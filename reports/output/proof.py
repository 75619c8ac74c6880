"""The output of `prove`."""

from msgspec import UNSET

from kvproof.reports.output.base import Maybe, OutputPart, VerdictName
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


class WitnessRun(OutputPart, frozen=True, kw_only=True):
    """The numbers of a refuted obligation as a run of the model, or the `reason` why there is none.
    `changes` says where the run differs from the numbers, and `impossible` why no cluster fits
    them. `trace` is null if there is no run, or if its file could not be written."""

    obligation: str
    invariant: str | None
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    impossible: str
    reason: str
    trace: str | None


class Proved(VerdictOutput, frozen=True, kw_only=True, tag="prove"):
    """The proofs of obligations, and their number by verdict. `witnesses` is there with --witness,
    and `certificates` with --certificates: the number of files, or null if they could not be
    written."""

    obligations: tuple[ObligationOutput, ...]
    proved: int
    violated: int
    unknown: int
    witnesses: Maybe[tuple[WitnessRun, ...]] = UNSET
    certificates: Maybe[int | None] = UNSET
