"""The outputs of `explain`, and of `report` on a trace or a record."""

from kvproof.model.hit_rows import HitRow
from kvproof.reports.output.base import Output, OutputPart, TraceLine


class Explanation(OutputPart, frozen=True, kw_only=True):
    """What a name stands for. A field that says nothing is empty. `scenario` has the paragraphs of
    its story. `where` says where a check is judged, or a fault shows. `breaks` are invariants and
    guards that a fault or a finding breaks, `faults` and `findings` are those that break a check.
    `see` are commands."""

    kind: str
    name: str
    sentence: str
    severity: str = ""
    origin: str = ""
    scenario: tuple[str, ...] = ()
    where: str = ""
    breaks: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    page: str = ""
    see: tuple[str, ...] = ()


class Explained(Output, frozen=True, kw_only=True, tag="explain"):
    """What has this name, more than one thing where a finding and a fault share it; or all names of
    a kind."""

    explanations: tuple[Explanation, ...]


class KindOfName(OutputPart, frozen=True, kw_only=True):
    """A kind of names that kvproof prints, and how many there are."""

    says: str
    names: int


class KindsOfNames(Output, frozen=True, kw_only=True, tag="explain"):
    """The kinds of names. `kvproof explain KIND` lists those of a kind."""

    kinds: dict[str, KindOfName]


class Report(Output, frozen=True, kw_only=True, tag="report"):
    """A trace or a record: the lines of its file, and in `shared` what became of the prompt tokens
    that earlier requests of the engine share. Each such token is in one row."""

    trace: tuple[TraceLine, ...]
    shared: tuple[HitRow, ...] = ()
