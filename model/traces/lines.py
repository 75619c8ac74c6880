"""The lines of a run file as declared types.

The first line is a `Header`, a `ConnectorHeader` or a `CoreHeader`. Then each event has a line: an
`EventLine`, an `ActionLine` or a `MessageLine`. A `FindingLine` may follow. The last line is an
`EndLine`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from kvproof.model.because import About, Reason
from kvproof.model.config import Cluster
from kvproof.model.events import Count, Event
from kvproof.model.finding import Finding
from kvproof.model.plans import connector, messages
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.wording import literal

SCHEMA: Final = 5
KIND: Final = "kvproof-run"


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line, or a part of a line. An unknown field is an error."""


class Versions(Line, frozen=True):
    """The releases that a trace was recorded with. `vllm` is null for the model. `tree` is the
    folder of the vLLM where it is not the installed one, as `--vllm` takes it."""

    kvproof: str
    vllm: str | None = None
    tree: str | UnsetType = UNSET


class _Header(Line, frozen=True, tag_field="of"):
    """The first line: what the events happened to, which is tagged as `of`."""

    schema: Literal[5]
    kind: Literal["kvproof-run"]
    versions: Versions
    seed: int


class Header(_Header, frozen=True, tag="cluster"):
    """The first line of a trace. `config` is a cluster, as in cluster files."""

    config: Cluster
    faults: tuple[str, ...]
    machine: Literal["model", "live"]


class NamedConnector(Line, frozen=True, omit_defaults=True):
    """A connector of a plan: its name, as `kvproof connector` takes it, its settings
    (`kv_connector_extra_config`), and whether it `keeps_prompts` by the word of its user."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    extra: dict[str, Any] = {}
    keeps_prompts: bool = False

    @property
    def needs_trust(self) -> bool:
        """Whether Python may import what it names: a class by its module or file, or a text among
        its settings, which vLLM may take for a module. Texts in the folder of an episode are
        none."""
        return ":" in self.name or any(
            not each.startswith("{tmp}") or ".." in each for each in _texts(self.extra)
        )


def _texts(value: Any) -> Iterator[str]:
    """The texts in a JSON value, but for the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


class ConnectorHeader(_Header, frozen=True, tag="connector"):
    """The first line of the plan of an engine with a connector, which real vLLM carries out.
    `config` is the plan without its actions."""

    connector: NamedConnector
    config: ConnectorPlan


class CoreHeader(_Header, frozen=True, tag="engine core"):
    """The first line of the plan of an engine core, which real vLLM carries out. `config` is the
    plan without its actions."""

    config: EnginePlan


class EventLine(Line, frozen=True):
    """One event. `step` counts from 1. `changed` has the new values of the state by JSON Pointer,
    and `removed` the pointers that no longer exist (see `state_diff`). Both are left out where the
    states could not be recorded."""

    step: Count
    event: Event
    changed: dict[str, Any] | UnsetType = UNSET
    removed: tuple[str, ...] | UnsetType = UNSET


class ActionLine(Line, frozen=True):
    """One action on an engine with a connector. `step` counts from 1."""

    step: Count
    event: connector.Action


class MessageLine(Line, frozen=True):
    """One action of the clients of an engine core. `step` counts from 1."""

    step: Count
    event: messages.Action


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


class Cause(Line, frozen=True, omit_defaults=True):
    """What the cause of a known finding needs: ingredients by name, without any of which its plan
    breaks the check no longer. Where it needs an option of the connector, `instead` is a connector
    of the kit that is without it. For the death of an engine, `death` is the exception and the
    function."""

    needs: tuple[str, ...] = ()
    instead: str = ""
    death: str = ""


class FindingLine(Line, frozen=True):
    """The line with a finding. What is known of its cause is there in a plan of findings/."""

    finding: Found
    cause: Cause | UnsetType = UNSET


class End(Line, frozen=True):
    """The number of events, so that a file that was cut off is recognised."""

    steps: Count


class EndLine(Line, frozen=True):
    """The last line of the file."""

    end: End


AnyHeader: TypeAlias = Header | ConnectorHeader | CoreHeader
AnyLine: TypeAlias = AnyHeader | EventLine | ActionLine | MessageLine | FindingLine | EndLine
