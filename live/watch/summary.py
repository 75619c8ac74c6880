"""What was judged, what was found, and what was not judged and why: of one or of many engines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.live.watch.not_judged import JUDGED, NOT_JUDGED

COUNTERS = (
    "watched",
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
    """Numbers by name: the engines that are watched; how often an invariant was asked, and does
    not hold; what was not judged because it is not known; engines that were changed by hand, that
    are not watched, in which kvproof made a mistake, or whose bytes are not judged where they
    should be, by the reason. `skipped` has invariants that mean nothing on an engine, as "name,
    because reason"."""

    def __init__(self) -> None:
        self.watched: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.unjudged: Counter[str] = Counter()
        self.by_hand: Counter[str] = Counter()
        self.mistakes: Counter[str] = Counter()
        self.not_watched: Counter[str] = Counter()
        self.no_bytes: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()

    def plain(self) -> dict[str, dict[str, int]]:
        """The numbers as plain data, which another process can add to its own."""
        return {name: dict(getattr(self, name)) for name in COUNTERS}

    def add(self, plain: Mapping[str, Mapping[str, int]]) -> None:
        """Add what another process has counted."""
        for name in COUNTERS:
            getattr(self, name).update(plain.get(name, {}))

    def lines(self) -> Iterator[str]:
        """One line for each thing that a person has to know."""
        watched = self.watched["engines"]
        yield f"watched: {watched} engine{_s(watched)}"
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
        known = (*JUDGED, *(name for name in SEVERITIES if name in self.asked))
        judged = [name for name in known if self.asked[name]]
        if judged:
            yield f"judged: {_list(f'{name} {self.asked[name]:,}' for name in judged)}"
        else:
            yield "UNKNOWN: nothing was judged"
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
        """The names of invariants that mean nothing on some engines, and on how many and why."""
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
    return f"{times} engine{_s(times)} {'was' if times == 1 else 'were'}"


def _s(times: int) -> str:
    return "" if times == 1 else "s"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
