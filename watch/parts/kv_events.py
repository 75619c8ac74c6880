"""These parts follow the KV events of an engine, and what a listener to them believes to be
cached."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

from kvproof.live import adapt
from kvproof.live.observer.kv_events import event_hash, reports
from kvproof.model.ghost_state import Ghost
from kvproof.model.kv_events import Keys, Report, Stored, follow
from kvproof.model.needs import Need
from kvproof.model.state import Engine
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest

UNSEEN = "KV events about blocks that were not seen cached"
OTHER = "\uffff"
"""A token that is not the request's."""

WORD = 16
"""Characters of a hash that a finding shows."""

Name = tuple[int, str]
"""A cache group, and a hash as reports have it."""


def name_of(key: Any) -> Name:
    """Return the name that events have for a key of the hash map."""
    return get_group_id(key), event_hash(get_block_hash(key))


class Listening(Part):
    """A part that follows the events that are taken from the pool. Those of other memory, where a
    connector stores blocks, are left out."""

    def hidden(self) -> Mapping[Need, str]:
        """Hide everything where the engine reports no KV events, as most do."""
        enabled = getattr(self.scheduler, "enable_kv_cache_events", False)
        return {} if enabled else dict.fromkeys(self.view.shows, "it reports no KV events")

    def taken(self) -> Iterator[Report]:
        """Return the reports that were taken, in order."""
        events = self.seen.event.reports or ()
        return reports(each for each in events if getattr(each, "medium", None) in (None, "GPU"))


class Mirror(Listening):
    """The keys that have changed since events were taken last, and what a listener believes."""

    view = Views.MIRROR

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.keys: dict[Name, Any] = {}
        self.believed: set[Name] = set()
        for block in self.slices.mapped:
            self.believed.update(map(name_of, self.slices.mapped.of(block)))

    def questions(self) -> Iterator[Question]:
        """Ask each time that events are taken: then none is left in the pool."""
        self.keys.update((name_of(key), key) for key, _ in self.seen.event.keys)
        if self.seen.event.reports is None:
            return
        for report in self.taken():
            follow(self.believed, report)
        known = self.slices.pool.cached_block_hash_to_block
        cached = {name for name, key in self.keys.items() if known.get_one_block(key) is not None}
        if self.keys:
            engine = Engine(
                self.cfg.name,
                (),
                (),
                cached=tuple((each, (1,)) for each in _keys(cached)),
                reports=(),
                ghost=Ghost(mirror=_keys(self.believed.intersection(self.keys))),
            )
            yield self.question(engine)
        self.believed.difference_update(self.keys)  # what is wrong is reported once
        self.believed |= cached
        self.keys.clear()


def _keys(names: Iterable[Name]) -> Keys:
    return tuple(sorted((group, value[:WORD]) for group, value in names))


class Carried(Listening):
    """Each event of stored blocks, with the tokens of the request that has cached them, from its
    parent on."""

    view = Views.CARRIED

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.fresh: dict[Name, tuple[WatchedRequest, int]] = {}
        self.believed: set[Name] = set()

    def questions(self) -> Iterator[Question]:
        """Ask about one event after the other."""
        self._learn()
        for report in self.taken():
            if isinstance(report, Stored):
                yield from self._stored(report)
            follow(self.believed, report)
        if self.seen.event.reports is not None:
            self.fresh.clear()

    def _learn(self) -> None:
        """Note whose tokens the keys name that were put into the hash map."""
        for (key, _), named in self.seen.named.items():
            self.fresh[name_of(key)] = named.watched, named.end

    def _stored(self, report: Stored) -> Iterator[Question]:
        group = report.group
        found = [self.fresh.get((group, value)) for value in report.prefixes]
        known = [each for each in found if each is not None]
        if len(known) != len(found) or len({id(watched) for watched, _ in known}) > 1:
            self.seen.unjudged[UNSEEN] += 1
            return
        if not known:
            return
        watched, ahead = known[0][0], self.cfg.hash_lookahead_tokens
        begin = self._end_of(report.parent, watched, group)
        cut = max(begin - 1, 0) // self.slices.unit * self.slices.unit
        parent = watched.tokens.text(cut, begin + ahead) if begin else ""
        stored = Stored(
            group,
            parent,
            _chars(watched, cut, begin, report.tokens),
            tuple(watched.tokens.text(cut, end) for _, end in known),
            tuple(
                _chars(watched, cut, end - ahead, after)
                for (_, end), after in zip(known, report.lookahead, strict=False)
            ),
        )
        groups = range(len(self.cfg.groups)) if begin else ()
        mirror = tuple((g, parent) for g in groups if (g, report.parent) in self.believed)
        before = Engine(self.cfg.name, (), (), ghost=Ghost(mirror=mirror))
        yield self.question(before=before, effects=Effects(reports=(stored,)))

    def _end_of(self, value: str, watched: WatchedRequest, group: int) -> int:
        """Return the number of tokens that a hash of a request stands for; 0 if it has no such
        hash."""
        unit = self.cfg.hash_block_size
        for size in (self.cfg.groups[group].block_size, unit) if value else ():
            whole = adapt.hashes_for(watched.live.block_hashes, unit, size)
            for place in range(len(whole)):
                if event_hash(whole[place]) == value:
                    return (place + 1) * size
        return 0


def _chars(watched: WatchedRequest, cut: int, begin: int, tokens: str) -> str:
    """Return the tokens of a report as characters: those of the request where they are its
    tokens."""
    text, own = watched.tokens.text(cut, begin + len(tokens)), watched.live.all_token_ids
    return "".join(
        str(text)[at - cut] if at < len(own) and own[at] == ord(token) else OTHER
        for at, token in enumerate(tokens, begin)
    )
