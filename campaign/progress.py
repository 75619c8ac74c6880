"""This module keeps what a campaign knows: the results of its units, merged in the order of their
numbers.

It is plain data, so that it is a file between two runs of a campaign, and two campaigns with equal
results are equal.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from kvproof.campaign.behaviours import kind
from kvproof.campaign.unit import CorpusEntry, FoundRun, Unit, UnitResult
from kvproof.gate.difference.workload import Engines, Episodes, Plays
from kvproof.model.finding import Signature

Count = Annotated[int, Meta(ge=0)]


class SeenBehaviour(Struct):
    """In how many fresh units a behaviour was seen, and in how many others."""

    fresh: Count = 0
    others: Count = 0


class Progress(Struct, forbid_unknown_fields=True):
    """Merge what the first `units` units gave. `fresh_units` of them were random episodes, and
    `plan_units` random plans.

    `different` counts the behaviours by kind. `corpus` are the kept runs in order of discovery.
    `found_at_unit` and `found_at_step` have the units and the steps after which each finding was
    found, and `traces` its file in the folder. `errors` and `undriven` say why units gave nothing,
    with the first unit of each reason.
    """

    units: Count = 0
    fresh_units: Count = 0
    plan_units: Count = 0
    steps: Count = 0
    runs: Count = 0
    seen: dict[str, SeenBehaviour] = {}
    different: dict[str, Count] = {}
    corpus: list[CorpusEntry] = []
    found: list[FoundRun] = []
    found_at_unit: list[Count] = []
    found_at_step: list[Count] = []
    traces: list[str] = []
    met: dict[str, Count] = {}
    undriven: dict[str, Count] = {}
    errors: dict[str, Count] = {}

    def merge(self, unit: Unit, result: UnitResult) -> list[FoundRun]:
        """Add the result of the next unit. Return the findings that are new."""
        self.units += 1
        self.steps += result.steps
        self.runs += result.runs
        if isinstance(unit.work, Plays | Engines):
            self.plan_units += bool(result.runs)
            self._see(result.shown, fresh=True)
        else:
            fresh = isinstance(unit.work, Episodes) and bool(result.runs)
            self.fresh_units += fresh
            self._keep(result, fresh)
        known = {each.signature for each in self.found}
        found = [each for each in result.found if each.signature not in known]
        self.found += found
        self.found_at_unit += [self.units] * len(found)
        self.found_at_step += [self.steps] * len(found)
        for name, times in result.met.items():
            self.met[name] = self.met.get(name, 0) + times
        if result.undriven:
            self.undriven.setdefault(result.undriven, result.number)
        if result.error:
            self.errors.setdefault(result.error, result.number)
        return found

    def _keep(self, result: UnitResult, fresh: bool) -> None:
        """Count the behaviours of a unit; each stands with the first run that shows it."""
        for kept in result.kept:
            if self._see(kept.behaviours, fresh):
                self.corpus.append(kept.entry)

    def _see(self, behaviours: Sequence[str], fresh: bool) -> bool:
        """Count behaviours of a unit. Return whether one of them was never seen before."""
        new = [each for each in behaviours if each not in self.seen]
        for behaviour in new:
            self.seen[behaviour] = SeenBehaviour()
            self.different[kind(behaviour)] = self.different.get(kind(behaviour), 0) + 1
        for seen in map(self.seen.__getitem__, behaviours):
            seen.fresh += fresh
            seen.others += not fresh
        return bool(new)

    def known(self, units: int) -> tuple[Signature, ...]:
        """Return the signatures of the findings of the first units."""
        both = zip(self.found, self.found_at_unit, strict=True)
        return tuple(each.signature for each, unit in both if unit <= units)
