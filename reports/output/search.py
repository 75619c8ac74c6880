"""The outputs of `explore`, `sample`, `replay`, `prove`, and of `report` on two records."""

from typing import Literal

from msgspec import UNSET

from kvproof.reports.output.base import Maybe, Output, OutputPart, VerdictName
from kvproof.reports.output.verdict import FindingOutput, VerdictOutput
from kvproof.strategies.conformance.replay import Difference, Parting


class Margin(OutputPart, frozen=True, kw_only=True):
    """The smallest margin of an invariant, and the events after which it occurred."""

    smallest: int
    after_events: int
    trace: tuple[str, ...]


class Explored(VerdictOutput, frozen=True, kw_only=True, tag="explore"):
    """An exhaustive search. `events` counts each kind of event, and `events_new` the states that it
    was first to reach. `margins` are the smallest ones of each invariant. `goals` has the number of
    events after which each coverage goal was first reached. Of real vLLM there are no margins and
    goals: `known` counts its known findings, in each replay again, and `import_s` is the wall
    time of its import in seconds, which `seconds` does not have. `tolerated` is a less severe
    finding beside this one; of a tolerated one, `otherwise` is the search for the graver checks."""

    import_s: Maybe[float] = UNSET
    known: Maybe[dict[str, int]] = UNSET
    states_distinct: Maybe[int] = UNSET
    states_generated: Maybe[int] = UNSET
    depth: Maybe[int] = UNSET
    events: Maybe[dict[str, int]] = UNSET
    events_new: Maybe[dict[str, int]] = UNSET
    margins: Maybe[dict[str, Margin]] = UNSET
    goals: Maybe[dict[str, int]] = UNSET
    goals_not_reached: Maybe[tuple[str, ...]] = UNSET
    states_per_s: Maybe[int] = UNSET
    memory_mib: Maybe[int] = UNSET
    tolerated: Maybe[FindingOutput] = UNSET
    otherwise: Maybe["Explored"] = UNSET


class Sampled(VerdictOutput, frozen=True, kw_only=True, tag="sample"):
    """Random episodes. With 95 % confidence, at most the share `unseen_at_most` of them would show
    a violation. Where the search drew its clusters, `config` is null, `clusters` counts the
    episodes of each, and `clusters_undriven` says why the others were not driven. `judged` says how
    often each check had something to judge. `known` counts the known findings of vLLM, and
    `policy` the steps in which it made another permitted choice than the reference, by kind.
    `import_s` is the wall time of the import of vLLM in seconds, which `seconds` does not have.
    `tolerated` and `otherwise` are as in `Explored`."""

    import_s: Maybe[float] = UNSET
    examples: Maybe[int] = UNSET
    steps: Maybe[int] = UNSET
    events: Maybe[dict[str, int]] = UNSET
    judged: Maybe[dict[str, int]] = UNSET
    unseen_at_most: Maybe[float] = UNSET
    clusters: Maybe[dict[str, int]] = UNSET
    clusters_undriven: Maybe[dict[str, str]] = UNSET
    known: Maybe[dict[str, int]] = UNSET
    policy: Maybe[dict[str, int]] = UNSET
    tolerated: Maybe[FindingOutput] = UNSET
    otherwise: Maybe["Sampled"] = UNSET


class Replayed(VerdictOutput, frozen=True, kw_only=True, tag="replay"):
    """A replay. The verdict is DIFFERS if a trace without a finding differs. `steps` is the number
    of events that were taken, and `followed` of those before the first that was not taken as it is
    in the trace (see `parted`); the choice of blocks is no difference there. `import_s` is the
    wall time of the import of vLLM in seconds, which `seconds` does not have."""

    import_s: Maybe[float] = UNSET
    verdict: Literal[VerdictName, "DIFFERS"]  # type: ignore[assignment]
    examples: Maybe[int] = UNSET
    steps: Maybe[int] = UNSET
    differs: Maybe[Difference] = UNSET
    followed: Maybe[int] = UNSET
    parted: Maybe[Parting] = UNSET


class ReleaseAnswer(OutputPart, frozen=True, kw_only=True):
    """Whether a release shows the finding of a trace (VIOLATED), and why that is so."""

    verdict: VerdictName
    why: str


class OnReleases(Output, frozen=True, kw_only=True, tag="replay"):
    """The releases that show the finding of one trace. The first bad release and the first good one
    after the last bad one are null if there is none."""

    verdict: VerdictName
    trace: str
    first_bad: str | None
    first_good: str | None
    releases: dict[str, ReleaseAnswer]


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


class Joined(VerdictOutput, frozen=True, kw_only=True, tag="report"):
    """Two records, joined. `requests` is the number of requests that both have. `judged` has how
    often each invariant had something to judge, and `not_judged` why it had nothing. `findings` has
    all of them, the gravest first; the fields of the verdict are about that one."""

    requests: Maybe[int] = UNSET
    judged: Maybe[dict[str, int]] = UNSET
    not_judged: Maybe[dict[str, str]] = UNSET
    findings: Maybe[tuple[FindingOutput, ...]] = UNSET
