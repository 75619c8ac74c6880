"""What was judged, what was found, and what was not judged and why: of one or of many engines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.watch.shown import JUDGED, NOT_JUDGED

Plain = Mapping[str, Mapping[str, int]]
"""The numbers of a summary as plain data."""

COUNTERS = (
    "watched",
    "lost",
    "records",
    "trusted",
    "asked",
    "found",
    "unjudged",
    "by_hand",
    "mistakes",
    "not_watched",
    "no_bytes",
    "skipped",
)


class Summary:
    """Numbers by name: the engines that are watched, and their steps; how often a check was
    asked, and does not hold; what was not judged because it is not known; engines that were changed
    by hand, that are not watched, in which kvproof made a mistake, or whose bytes are not judged
    where they should be, by the reason. `trusted` are the loads that are taken to be right, by "of
    connector", `skipped` the checks that need what an engine does not show, as "name, because
    reason". `records` are lines about files, and `lost` sentences about processes whose numbers are
    not whole."""

    def __init__(self) -> None:
        self.watched: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.trusted: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.unjudged: Counter[str] = Counter()
        self.by_hand: Counter[str] = Counter()
        self.mistakes: Counter[str] = Counter()
        self.not_watched: Counter[str] = Counter()
        self.no_bytes: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def plain(self) -> Plain:
        """The numbers as plain data, which another process can add to its own."""
        return {name: dict(getattr(self, name)) for name in COUNTERS}

    def add(self, plain: Plain) -> None:
        """Add what another process has counted."""
        for name in COUNTERS:
            getattr(self, name).update(plain.get(name, {}))

    @property
    def verdict(self) -> str:
        """What a person has to know, in a line."""
        steps, engines = self.watched["steps"], self.watched["engines"]
        broken, times = len(self.found), self.found.total()
        judged = f"in {_number(steps, 'step')} of {_number(engines, 'engine')}"
        if broken:
            often = f", found {times:,} times," if times > broken else ""
            said = f"{_number(broken, 'violation')}{often} {judged}"
        elif steps and self.asked:
            said = f"no violation {judged}"
        elif engines:
            said = f"UNKNOWN: nothing was watched: {_number(engines, 'engine')} took no step"
        else:
            said = "UNKNOWN: nothing was watched: no engine was there to be watched"
        return "; ".join((said, *self._reservations()))

    def _reservations(self) -> Iterator[str]:
        for of, times in self.trusted.items():
            if times:
                yield f"{_number(times, 'load')} {of} {_were(times)} trusted, not judged"
        for times, what in (
            (self.not_watched.total(), "not watched"),
            (self.by_hand.total(), "not watched to the end"),
            (self.no_bytes.total(), "watched without its bytes"),
        ):
            if times:
                yield f"{_engines(times)} {what}"
        if times := self.mistakes.total():
            yield f"kvproof made a mistake on {_number(times, 'engine')}"
        if times := self.lost.total():
            yield f"the numbers of {_number(times, 'process', 'processes')} are not whole"

    def lines(self) -> Iterator[str]:
        """One line for each thing that a person has to know, the verdict first."""
        yield self.verdict
        yield from self.lost
        for why, times in self.by_hand.items():
            yield f"{_engines(times)} not watched any further: {why}"
        for why, times in self.mistakes.items():
            yield f"UNKNOWN: kvproof made a mistake on {times} engine{_s(times)}: {why}"
        for why, times in self.not_watched.items():
            yield f"UNKNOWN: {_engines(times)} not watched: {why}"
        for why, times in self.no_bytes.items():
            yield f"UNKNOWN: the bytes of {times} engine{_s(times)} were not judged: {why}"
        for name, times in self.found.most_common():
            yield f"VIOLATED: {name}, {times} time{_s(times)}"
        yield from self.records
        known = (*JUDGED, *(name for name in SEVERITIES if name in self.asked))
        judged = [name for name in known if self.asked[name]]
        if judged:
            yield f"judged: {_list(f'{name} {self.asked[name]:,}' for name in judged)}"
        for what, times in self.unjudged.items():
            yield f"not judged: {times:,} {what}"
        for name, reasons in self._skipped():
            yield f"not judged on {reasons}: {name}"
        silent = [name for name in known if not self.asked[name]]
        if judged and silent:
            yield f"had nothing to judge: {_list(silent)}"
        for why, names in _by_reason(NOT_JUDGED):
            yield f"never judged by a watcher: {_list(names)}. {why}"

    def _skipped(self) -> Iterator[tuple[str, str]]:
        """The names of checks that are not asked on some engines, and on how many and why."""
        found: dict[str, list[str]] = {}
        for each, times in self.skipped.items():
            name, why = each.split(", because ", 1)
            found.setdefault(f"{times} engine{_s(times)}, because {why}", []).append(name)
        for why, names in found.items():
            yield _list(names), why


def _by_reason(reasons: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    for why in dict.fromkeys(reasons.values()):
        yield why, [name for name, other in reasons.items() if other == why]


def _engines(times: int) -> str:
    return f"{times} engine{_s(times)} {_were(times)}"


def _were(times: int) -> str:
    return "was" if times == 1 else "were"


def _number(times: int, one: str, many: str = "") -> str:
    """So many of something, in words."""
    return f"{times:,} {one if times == 1 else many or f'{one}s'}"


def _s(times: int) -> str:
    return "" if times == 1 else "s"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
