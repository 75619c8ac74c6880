"""The lines of a trace file as declared types.

The first line is a `Header`. Then each event has an `EventLine`. A `FindingLine` may follow. The
last line is an `EndLine`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from kvproof.model.because import About, Reason
from kvproof.model.config import Cluster
from kvproof.model.events import Count, Event
from kvproof.model.finding import Finding
from kvproof.model.wording import literal

SCHEMA: Final = 4
KIND: Final = "kvproof-trace"


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line, or a part of a line. An unknown field is an error."""


class Versions(Line, frozen=True):
    """The releases that a trace was recorded with. `vllm` is null for the model. `tree` is the
    folder of the vLLM where it is not the installed one, as `--vllm` takes it."""

    kvproof: str
    vllm: str | None = None
    tree: str | UnsetType = UNSET


class Header(Line, frozen=True):
    """The first line: what the events happened to. `config` is a cluster, as in cluster files."""

    schema: Literal[4]
    kind: Literal["kvproof-trace"]
    config: Cluster
    faults: tuple[str, ...]
    machine: Literal["model", "live"]
    versions: Versions
    seed: int


class EventLine(Line, frozen=True):
    """One event. `step` counts from 1. `changed` has the new values of the state by JSON Pointer,
    and `removed` the pointers that no longer exist (see `state_diff`). Both are left out where the
    states could not be recorded."""

    step: Count
    event: Event
    changed: dict[str, Any] | UnsetType = UNSET
    removed: tuple[str, ...] | UnsetType = UNSET


class Found(Line, frozen=True):
    """A check that does not hold after the last event. The words of a reason (`says`) are for
    people; its `kind` and `facts` are compared."""

    invariant: str
    reasons: Annotated[tuple[Reason, ...], Meta(min_length=1)]
    about: About = About()

    @classmethod
    def of(cls, finding: Finding) -> "Found":
        """Make the record of a finding, with its reasons in words."""
        worded = zip(finding.reasons, finding.sentences, strict=True)
        reasons = tuple(Reason(each.kind, words, each.facts) for each, words in worded)
        return cls(finding.invariant, reasons, finding.about)

    @property
    def finding(self) -> Finding:
        """The finding that this record stands for."""
        reasons = (Reason(each.kind, literal(each.says), each.facts) for each in self.reasons)
        return Finding(self.invariant, tuple(reasons), self.about)


class FindingLine(Line, frozen=True):
    """The line with a finding."""

    finding: Found


class End(Line, frozen=True):
    """The number of events, so that a file that was cut off is recognised."""

    steps: Count


class EndLine(Line, frozen=True):
    """The last line of the file."""

    end: End


AnyLine: TypeAlias = Header | EventLine | FindingLine | EndLine
