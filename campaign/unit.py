"""Work units and their results: plain data, which goes to another process or machine and back."""

from typing import Literal

import msgspec
from msgspec import Struct

from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.signature import Signature
from kvproof.model.traces.lines import Found


class WorkPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a unit or of a result."""


class CorpusEntry(WorkPart, frozen=True):
    """A run to begin with: a cluster with its jobs, and stimuli in order. Where it was kept, `new`
    is the number of behaviours that it was the first to show."""

    cluster: Cluster
    events: tuple[Event, ...]
    new: int = 0


Mode = Literal["fresh", "follow", "mutate"]


class WorkUnit(WorkPart, frozen=True):
    """A piece of work. `fresh`: random episodes of the cluster. `follow`: take the entries as they
    are. `mutate`: take changed versions of the first entry, in the cluster of the unit.

    A unit ends with the run in which its number of steps reaches `steps`. `known` are the
    signatures of findings whose runs need not be made shorter any more.
    """

    number: int
    mode: Mode
    cluster: Cluster
    seed: int
    steps: int
    entries: tuple[CorpusEntry, ...] = ()
    known: tuple[Signature, ...] = ()


class KeptRun(WorkPart, frozen=True):
    """A run that showed what no earlier run of its unit did."""

    entry: CorpusEntry
    behaviours: tuple[str, ...]


class FoundRun(WorkPart, frozen=True):
    """A finding, and the run that ends with it, with all choices filled in."""

    signature: Signature
    found: Found
    entry: CorpusEntry


class UnitResult(WorkPart, frozen=True, kw_only=True):
    """What a unit gave. `met` counts the known deviations of vLLM. `undriven` says why its cluster
    cannot be driven with this vLLM, and `error` why the unit did not end."""

    number: int
    steps: int = 0
    runs: int = 0
    kept: tuple[KeptRun, ...] = ()
    found: tuple[FoundRun, ...] = ()
    met: dict[str, int] = {}
    undriven: str = ""
    error: str = ""


def packed(part: WorkPart) -> bytes:
    """A unit or a result as one line of JSON."""
    return msgspec.json.encode(part)


def unit_of(data: bytes) -> WorkUnit:
    """The unit in this line."""
    return msgspec.json.decode(data, type=WorkUnit)


def result_of(data: bytes) -> UnitResult:
    """The result in this line."""
    return msgspec.json.decode(data, type=UnitResult)
