"""The outputs about releases of vLLM: `releases`, also with --trace, and `doctor`."""

from kvproof.reports.output.base import Output, OutputPart, VerdictName


class Cell(OutputPart, frozen=True, kw_only=True):
    """A verdict about a release, and its reason. `trace` is the file that shows it, among those of
    the release. `causes` are the findings and faults that broke an invariant; "after X" is a
    consequence of X."""

    verdict: VerdictName
    why: str
    trace: str | None
    causes: tuple[str, ...]


class HeatRow(OutputPart, frozen=True, kw_only=True):
    """An invariant, a story or a fault over the releases. The first bad release and the first good
    one after it are null if there is none."""

    name: str
    about: str
    first_bad: str | None
    first_good: str | None
    releases: dict[str, Cell]


class Releases(Output, frozen=True, kw_only=True, tag="releases"):
    """The heat map. `unexplained` are violations without a known cause, `not_driven` says what
    could not be run, each with the releases."""

    verdict: VerdictName
    seed: int
    episodes: int
    seconds: float
    releases: tuple[str, ...]
    invariants: tuple[HeatRow, ...]
    stories: tuple[HeatRow, ...]
    faults: tuple[HeatRow, ...]
    unexplained: tuple[str, ...]
    not_driven: tuple[str, ...]


class TraceCell(OutputPart, frozen=True, kw_only=True):
    """Whether a release shows the finding of a trace, and why that is so."""

    verdict: VerdictName
    why: str


class ReleasesOfTrace(Output, frozen=True, kw_only=True, tag="releases"):
    """The releases that show the finding of one trace, with --trace."""

    verdict: VerdictName
    trace: str
    first_bad: str | None
    first_good: str | None
    releases: dict[str, TraceCell]


class Vllm(OutputPart, frozen=True, kw_only=True):
    """The vLLM that is driven; null if there is none."""

    version: str | None
    path: str | None


class FeatureRow(OutputPart, frozen=True, kw_only=True):
    """A feature, the features that it needs, and the entries that this vLLM does not have."""

    name: str
    what: str
    needs: tuple[str, ...]
    drivable: bool
    missing: tuple[str, ...]


class EntryRow(OutputPart, frozen=True, kw_only=True):
    """A symbol of vLLM that kvproof uses. `found` is its place, or null, and `why` the reason."""

    name: str
    feature: str
    used_for: str
    looked_at: str
    found: str | None
    why: str | None


class HiddenRow(OutputPart, frozen=True, kw_only=True):
    """A package that vLLM requires beside torch and that does not load, and the last line of its
    error."""

    name: str
    version: str
    why: str


class Doctor(Output, frozen=True, kw_only=True, tag="doctor"):
    """What of the installed vLLM can be driven. `failure` says why nothing can be looked up.
    `hidden` are packages that do not load, which kvproof hides from vLLM. `sanitizer` says whether
    an engine that is started here is watched, and what is known of those that are."""

    vllm: Vllm
    failure: str | None
    hidden: tuple[HiddenRow, ...]
    sanitizer: tuple[str, ...]
    features: tuple[FeatureRow, ...]
    entries: tuple[EntryRow, ...]
