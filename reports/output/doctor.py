"""The output of `doctor`."""

from kvproof.reports.output.base import Output, OutputPart


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
    an engine that is started here is watched, and what is known of those that are. `cache` says how
    much the cache folder keeps of commits of vLLM."""

    vllm: Vllm
    failure: str | None
    hidden: tuple[HiddenRow, ...]
    sanitizer: tuple[str, ...]
    cache: str
    features: tuple[FeatureRow, ...]
    entries: tuple[EntryRow, ...]
