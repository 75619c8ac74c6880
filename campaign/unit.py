"""Work units and their results: plain data, which goes to another process or machine and back."""

from typing import Literal

import msgspec
from msgspec import Struct

from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.signature import Signature
from kvproof.model.traces.lines import Found


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a unit or of a result."""


class Entry(Part, frozen=True):
    """A run to begin with: a cluster with its jobs, and stimuli in order. Where it was kept, `new`
    is the number of behaviours that it was the first to show."""

    cluster: Cluster
    events: tuple[Event, ...]
    new: int = 0


Mode = Literal["fresh", "follow", "mutate"]


class Unit(Part, frozen=True):
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
    entries: tuple[Entry, ...] = ()
    known: tuple[Signature, ...] = ()


class Kept(Part, frozen=True):
    """A run that showed what no earlier run of its unit did."""

    entry: Entry
    behaviours: tuple[str, ...]


class FoundRun(Part, frozen=True):
    """A finding, and the run that ends with it, with all choices filled in."""

    signature: Signature
    found: Found
    entry: Entry


class Result(Part, frozen=True, kw_only=True):
    """What a unit gave. `met` counts the known deviations of vLLM. `undriven` says why its cluster
    cannot be driven with this vLLM, and `error` why the unit did not end."""

    number: int
    steps: int = 0
    runs: int = 0
    kept: tuple[Kept, ...] = ()
    found: tuple[FoundRun, ...] = ()
    met: dict[str, int] = {}
    undriven: str = ""
    error: str = ""


def packed(part: Part) -> bytes:
    """A unit or a result as one line of JSON."""
    return msgspec.json.encode(part)


def unit_of(data: bytes) -> Unit:
    """The unit in this line."""
    return msgspec.json.decode(data, type=Unit)


def result_of(data: bytes) -> Result:
    """The result in this line."""
    return msgspec.json.decode(data, type=Result)
