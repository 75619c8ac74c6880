"""The output of `gate`: a pull request, judged by the difference between base and head. Paths are
text, as JSON has no other kind."""

from typing import Annotated, Literal, TypeVar, Union

from msgspec import UNSET, Meta, Struct, UnsetType

Field = TypeVar("Field")

Maybe = Union[Field, UnsetType]  # noqa: UP007 (an alias with a parameter)
"""A field that is left out where it says nothing."""


class OutputPart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the output. Decoded strictly, an unknown field is an error."""


Class = Literal["introduced", "costs", "mended", "still there", "not comparable"]
"""How a finding differs between base and head. One that is `introduced` is on head and not on base.
One that `costs` has an excuse that a good scheduler may have, and head needs it more often than
base.
`mended` is on base, and head takes the same run to its end without it. One that is `not comparable`
is on base, and head does not take its run: nothing is known of it there."""


class GateLost(OutputPart, frozen=True, kw_only=True):
    """A feature that could be driven on base and cannot on head: `entry` of the contract is missing
    there, and `why` says what is known about it."""

    feature: str
    entry: str
    why: str


class GateTree(OutputPart, frozen=True, kw_only=True):
    """A vLLM. `name` is what the user called it (a path, a commit, a release), `version` what its
    metadata says, `fingerprint` a hash of its Python files. `not_driven` are the features that
    kvproof cannot drive on it, with the missing entry of the contract. `known_findings` are the
    names of those that it has. `path` is what `--vllm` takes to drive it again, null if it is the
    installed one."""

    name: str
    version: str
    fingerprint: str
    not_driven: tuple[GateLost, ...] = ()
    known_findings: tuple[str, ...] = ()
    path: str | None = None


class GatePlace(OutputPart, frozen=True, kw_only=True):
    """A function of vLLM that the pull request changes and that the run of a finding reaches.
    `file` is relative to the root of the repository, as in `vllm/v1/request.py`; `line` counts from
    1."""

    file: str
    line: Annotated[int, Meta(ge=1)]
    function: str


class GateFunction(OutputPart, frozen=True, kw_only=True):
    """A function that the pull request changes. `part` is the part of the KV-cache accounting to
    which it belongs, null for one that is proved to be outside, and `why` says why. `statements` is
    the number of its changed statements, and `not_executed` has the lines of those that no watched
    run executed; a statement that head only removes has its line on base, as a negative number.
    `outcomes` is the number of values, true and false, that operands of its changed conditions may
    have, and `not_seen` has the line and the text of each operand that had not both.
    `runs` is the number of watched runs that executed one, or that called the function where none
    is changed. In `effect` of these, base and head differ in something that can be seen."""

    function: str
    part: str | None
    why: str
    runs: Annotated[int, Meta(ge=0)] = 0
    effect: Annotated[int, Meta(ge=0)] = 0
    statements: Annotated[int, Meta(ge=0)] = 0
    not_executed: tuple[int, ...] = ()
    outcomes: Annotated[int, Meta(ge=0)] = 0
    not_seen: tuple[str, ...] = ()


class GateFinding(OutputPart, frozen=True, kw_only=True):
    """A violation on base or head, seen again in a fresh process.

    `invariant` is the id of the invariant or guard, `says` the sentence that must be true,
    `severity` in words, `signature` the check with the event, the kind of cache group and, for a
    death, the function. `sentence` is what was found. `workload` names the run that shows it, on
    `cluster`. `events` are the events of the shortest run found, in words; the last one breaks the
    invariant. `also` has the signatures of what else this side alone breaks in that run, with the
    kinds of the facts that contradict each other. `known` is the known finding that explains it, or
    null. `fails` is whether it makes the exit code 1. `parting` says where head leaves a run that
    is not comparable, else it is null. `reproducer` is a pytest file in vLLM's own terms, which was
    run: it fails on head and passes on base. A finding about a connector has its name in kvproof's
    table in `connector`. `excuses` says what a break is excused with where it is judged on one vLLM
    alone."""

    kind: Class
    invariant: str
    says: str
    origin: str
    severity: str
    signature: str
    sentence: str
    workload: str
    cluster: str
    events: tuple[str, ...]
    known: str | None
    fails: bool
    places: tuple[GatePlace, ...] = ()
    trace: str | None = None
    reproducer: str | None = None
    also: tuple[str, ...] = ()
    parting: str | None = None
    connector: str | None = None
    excuses: tuple[str, ...] = ()


class GateDifference(OutputPart, frozen=True, kw_only=True):
    """A quantity that differs between base and head in some of `runs` runs, and may do so: head
    counts worse in `worse` of them, and better in `better`."""

    what: str
    worse: int
    better: int
    runs: int


class GateCost(GateDifference, frozen=True, kw_only=True):
    """A quantity of which head counts worse than base in `worse` of `runs` runs, and better in
    `better`, which is significantly less often: in the search, and again in fresh runs. `base` and
    `head` are its sums over the runs in which it differs. `workload` names the smallest run in
    which it is worse, and `parts` the event at which head leaves base there."""

    base: int
    head: int
    workload: str
    parts: str


class GateRan(OutputPart, frozen=True, kw_only=True):
    """What was run on each side: workloads that replay a trace, workloads of random episodes, and
    steps of vLLM. `compared` runs of schedulers and connectors were taken by both sides, and in
    `differing` of these something that can be seen was not equal."""

    traces: int
    sampled: int
    steps: int
    compared: int = 0
    differing: int = 0


class GateFound(OutputPart, frozen=True, kw_only=True):
    """How many real defects the gate has found on this date, of every third of a list that its
    authors had: those in the changed `part` of vLLM, or in all parts. Of changes that they have not
    seen, expect fewer."""

    part: str
    found: Annotated[int, Meta(ge=0)]
    of: Annotated[int, Meta(ge=1)]
    date: str


class Gate(OutputPart, frozen=True, kw_only=True):
    """The check of a pull request.

    The verdict is VIOLATED if a finding is introduced, UNKNOWN if head cannot be judged or changes
    accounting that no run reaches, COSTS if nothing is introduced and something costs more, NO
    EFFECT if base and head were equal in all that can be seen in every run, SAMPLED if nothing got
    worse, and UNCHANGED if head changes
    no function of the accounting: then nothing was run. `reason` says why the verdict is UNKNOWN or
    UNCHANGED. `changed_functions` are those of the accounting, `reached` those of them that some
    run executed. `functions` has all that is changed, and `watched` is the number of runs in which
    executed lines were recorded. `not_run` has a line for each workload, feature or function that
    was not judged. `costs` is what costs more on head, and `differs` what differs and may do so.
    `found` says how far to trust a verdict that is not red. `seconds` is wall time."""

    version: Literal[4] = 4
    command: Literal["gate"] = "gate"
    exit_code: Annotated[int, Meta(ge=0, le=255)]
    verdict: Literal["SAMPLED", "VIOLATED", "UNKNOWN", "COSTS", "NO EFFECT", "UNCHANGED"]
    seed: int
    seconds: float
    budget_s: float
    base: GateTree
    head: GateTree
    changed_functions: tuple[str, ...]
    reached: tuple[str, ...]
    ran: GateRan
    findings: tuple[GateFinding, ...]
    costs: tuple[GateCost, ...]
    differs: tuple[GateDifference, ...]
    lost: tuple[GateLost, ...]
    not_run: tuple[str, ...]
    functions: tuple[GateFunction, ...] = ()
    watched: int = 0
    found: Maybe[GateFound] = UNSET
    reason: Maybe[str] = UNSET
