"""The outputs of the commands that list what there is."""

from kvproof.model.config import Cluster
from kvproof.reports.output.base import Output, OutputPart, TraceLine


class InvariantRow(OutputPart, frozen=True, kw_only=True):
    """An invariant. `killed_by` is a fault that breaks it."""

    id: str
    name: str
    kind: str
    severity: str | None
    origin: str
    killed_by: str


class GuardRow(OutputPart, frozen=True, kw_only=True):
    """A guard of the spec. `part` says which steps it is about."""

    id: str
    name: str
    part: str
    severity: str


class Invariants(Output, frozen=True, kw_only=True, tag="invariants"):
    """The invariants and the guards."""

    invariants: tuple[InvariantRow, ...]
    guards: tuple[GuardRow, ...]


class FaultRow(OutputPart, frozen=True, kw_only=True):
    """A fault: the functions that it replaces (`module:function` below `kvproof.model`), the
    invariants that it breaks, and its preset."""

    name: str
    origin: str
    mistake: str
    replaces: tuple[str, ...]
    breaks: tuple[str, ...]
    config: str


class Faults(Output, frozen=True, kw_only=True, tag="faults"):
    """The faults."""

    faults: tuple[FaultRow, ...]


class ConfigRow(OutputPart, frozen=True, kw_only=True):
    """A preset cluster, and the number of its distinct states."""

    name: str
    about: str
    distinct_states: int


class Configs(Output, frozen=True, kw_only=True, tag="configs"):
    """The preset clusters."""

    configs: tuple[ConfigRow, ...]


class ShownConfig(Output, frozen=True, kw_only=True, tag="configs"):
    """One cluster (`--show`)."""

    config: Cluster


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
    """What has this name: more than one thing where a finding and a fault share it."""

    explanations: tuple[Explanation, ...]


class Report(Output, frozen=True, kw_only=True, tag="report"):
    """A trace or a record: the lines of its file."""

    trace: tuple[TraceLine, ...]
