"""This module runs a campaign from its beginning, or from where it was stopped, to its end."""

import time
from collections.abc import Callable

from kvproof.campaign.folder import CampaignFolder, CampaignSettings
from kvproof.campaign.plan import Plan, knows
from kvproof.campaign.processes import WorkerPool
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import FoundRun, Unit, UnitResult, packed, result_of
from kvproof.model import interruption

SAVED_EVERY_S = 20.0
WAIT_S = 0.5
"""Between two looks at an interruption."""


class Campaign:
    """Carry out the units from the first that is missing to the last. `found` writes the trace of a
    new finding and returns its file."""

    def __init__(
        self,
        folder: CampaignFolder,
        settings: CampaignSettings,
        plan: Plan,
        progress: Progress,
        results: dict[int, UnitResult],
        found: Callable[[FoundRun], str] = lambda _found: "",
    ) -> None:
        self.folder, self.settings, self.plan = folder, settings, plan
        self.progress, self.results = progress, results
        self.found = found
        self.saved_at = time.monotonic()
        self.units: dict[int, Unit] = {}

    def run(self, pool: WorkerPool, last: int, show: Callable[[Progress], None]) -> None:
        """Carry out all units before `last`. What is known is also saved when this is
        interrupted."""
        number, given = self.progress.units, 0
        try:
            while self.progress.units < last:
                interruption.check()
                while given < pool.capacity and number < last and self._ready(number):
                    if number not in self.results:
                        pool.give(number, packed(self._unit(number)))
                        given += 1
                    number += 1
                if given and (ended := pool.next(WAIT_S)) is not None:
                    given -= 1
                    self.folder.note(ended[1])
                    self.results[ended[0]] = result_of(ended[1])
                self._merge()
                show(self.progress)
        finally:
            with interruption.held():
                self._save()

    def _ready(self, number: int) -> bool:
        """Whether the units are merged whose findings this unit knows."""
        return knows(number) <= self.progress.units

    def _unit(self, number: int) -> Unit:
        return self.units.setdefault(number, self.plan.unit(number, self.progress))

    def _merge(self) -> None:
        """Merge the results that are next in order."""
        while self.progress.units in self.results:
            with interruption.held():  # what is saved has no half of a result
                self._merge_next()
        if time.monotonic() - self.saved_at > SAVED_EVERY_S:
            self._save()

    def _merge_next(self) -> None:
        progress = self.progress
        number = progress.units
        unit = self._unit(number)
        for found in progress.merge(unit, self.results.pop(number)):
            progress.traces.append(self.found(found))
        del self.units[number]

    def _save(self) -> None:
        self.folder.save(self.settings, self.progress, self.results)
        self.saved_at = time.monotonic()
