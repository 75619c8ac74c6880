"""This module sums up what was judged, what was found, and what was not judged and why, of one or
of many engines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.model.counted import counted, was
from kvproof.model.hit_rows import sentence
from kvproof.watch.shown import JUDGED, NOT_JUDGED

Plain = Mapping[str, Mapping[str, int]]
"""The numbers of a summary as plain data."""


@dataclass
class Summary:
    """Numbers by name: the engines that are watched, and their steps; how often a check was
    asked, and does not hold; what was not judged because it is not known; engines that were changed
    by hand, that are not watched, in which kvproof made a mistake, or whose bytes are not judged
    where they should be, by the reason. `trusted` are the loads that are taken to be right, by "of
    connector", `shared` the tokens that requests share with earlier ones, by what became of them,
    `skipped` the checks that need what an engine does not show, as "name, because
    reason". `records` are lines about files, and `lost` sentences about processes whose numbers are
    not whole."""

    watched: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    trusted: Counter[str] = field(default_factory=Counter)
    shared: Counter[str] = field(default_factory=Counter)
    times_judged: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    by_hand: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    not_watched: Counter[str] = field(default_factory=Counter)
    no_bytes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def plain(self) -> Plain:
        """Return the numbers as plain data, which another process can add to its own."""
        return {name: dict(counter) for name, counter in vars(self).items()}

    def add(self, plain: Plain) -> None:
        """Add what another process has counted."""
        for name, counter in vars(self).items():
            counter.update(plain.get(name, {}))

    @property
    def verdict(self) -> str:
        """The first line that a person needs: violations, or how much was judged without one."""
        steps, engines = self.watched["steps"], self.watched["engines"]
        broken, times = len(self.found), self.found.total()
        judged = f"in {counted(steps, 'step')} of {counted(engines, 'engine')}"
        if broken:
            often = f", found {times:,} times," if times > broken else ""
            verdict = f"{counted(broken, 'violation')}{often} {judged}"
        elif steps and self.times_judged:
            verdict = f"no violation {judged}"
        elif engines:
            verdict = f"UNKNOWN: nothing was watched: {counted(engines, 'engine')} took no step"
        else:
            verdict = "UNKNOWN: nothing was watched: no engine was there to be watched"
        return "; ".join((verdict, *self._reservations()))

    def _reservations(self) -> Iterator[str]:
        for of, times in self.trusted.items():
            if times:
                yield f"{counted(times, 'load')} {of} {was(times)} trusted, not judged"
        for times, what in (
            (self.not_watched.total(), "not watched"),
            (self.by_hand.total(), "not watched to the end"),
            (self.no_bytes.total(), "watched without its bytes"),
        ):
            if times:
                yield f"{_engines(times)} {what}"
        if times := self.mistakes.total():
            yield f"kvproof made a mistake on {counted(times, 'engine')}"
        if times := self.lost.total():
            yield f"the numbers of {counted(times, 'process', 'processes')} are not whole"

    def lines(self) -> Iterator[str]:
        """Return one line for each thing that a person has to know, the verdict first."""
        yield self.verdict
        yield from self.lost
        for why, times in self.by_hand.items():
            yield f"{_engines(times)} not watched any further: {why}"
        for why, times in self.mistakes.items():
            yield f"UNKNOWN: kvproof made a mistake on {counted(times, 'engine')}: {why}"
        for why, times in self.not_watched.items():
            yield f"UNKNOWN: {_engines(times)} not watched: {why}"
        for why, times in self.no_bytes.items():
            yield f"UNKNOWN: the bytes of {counted(times, 'engine')} were not judged: {why}"
        for name, times in self.found.most_common():
            yield f"VIOLATED: {name}, {counted(times, 'time')}"
        yield from self.records
        if told := sentence(self.shared):
            yield told
        known = (*JUDGED, *(name for name in SEVERITIES if name in self.times_judged))
        judged = [name for name in known if self.times_judged[name]]
        if judged:
            yield f"judged: {_list(f'{name} {self.times_judged[name]:,}' for name in judged)}"
        for what, times in self.unjudged.items():
            yield f"not judged: {times:,} {what}"
        if self.skipped:
            yield f"not judged on {'; '.join(self._skipped())}"
        silent = [name for name in known if not self.times_judged[name]]
        if judged and silent:
            yield f"had nothing to judge: {_list(silent)}"
        yield f"never judged by a watcher (kvproof explain NAME says why): {_list(NOT_JUDGED)}"

    def _skipped(self) -> Iterator[str]:
        """Say on how many engines which checks are not asked, and why."""
        found: dict[tuple[int, str], list[str]] = {}
        for each, times in self.skipped.items():
            name, why = each.split(", because ", 1)
            found.setdefault((times, why), []).append(name)
        for (times, why), names in found.items():
            yield f"{counted(times, 'engine')}, because {why}: {_list(names)}"


def _engines(times: int) -> str:
    return f"{counted(times, 'engine')} {was(times)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
