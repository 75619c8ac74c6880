"""This module has work units and their results. They are plain data, which goes to another process
or machine and back."""

import msgspec
from msgspec import Struct

from kvproof.gate.difference.workload import Engines, Episodes, Planned, Plays
from kvproof.model.finding import Signature
from kvproof.model.plans.part import Taken
from kvproof.model.traces.lines import Found
from kvproof.strategies.shrinking import length


class WorkPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a unit or of a result."""


class CorpusEntry(Taken, frozen=True, tag_field="kind", tag="run"):
    """A run to begin with, of stimuli. Where it was kept, `shows` are its abstract steps."""

    shows: tuple[str, ...] = ()


class Unit(WorkPart, frozen=True):
    """A piece of work: random episodes of a cluster, random plans for a connector that vLLM ships
    or for an engine core, or entries of a corpus, which are taken as they are. `known` are the
    signatures of findings whose runs need not be made shorter any more."""

    number: int
    work: Episodes | Plays | Engines | tuple[CorpusEntry, ...]
    known: tuple[Signature, ...] = ()


class KeptRun(WorkPart, frozen=True):
    """A run that showed what no earlier run of its unit did."""

    entry: CorpusEntry
    behaviours: tuple[str, ...]


class FoundRun(WorkPart, frozen=True):
    """A finding, and the run that ends with it, with all choices filled in, or the plan that shows
    it."""

    signature: Signature
    found: Found
    entry: CorpusEntry | Planned

    @property
    def length(self) -> int:
        """The number of events, or of the parts of a plan."""
        return length(self.entry if isinstance(self.entry, CorpusEntry) else self.entry.plan)


class UnitResult(WorkPart, frozen=True, kw_only=True):
    """What a unit gave. `shown` are the behaviours that plans showed. `met` counts the known
    findings of vLLM. `undriven` says why this vLLM cannot be driven like this, and `error` why
    the unit did not end."""

    number: int
    steps: int = 0
    runs: int = 0
    kept: tuple[KeptRun, ...] = ()
    shown: tuple[str, ...] = ()
    found: tuple[FoundRun, ...] = ()
    met: dict[str, int] = {}
    undriven: str = ""
    error: str = ""


def packed(part: Unit | UnitResult) -> bytes:
    """Return a unit or a result as one line of JSON."""
    return msgspec.json.encode(part)


def unit_of(data: bytes) -> Unit:
    """Return the unit in this line."""
    return msgspec.json.decode(data, type=Unit)


def result_of(data: bytes) -> UnitResult:
    """Return the result in this line."""
    return msgspec.json.decode(data, type=UnitResult)
