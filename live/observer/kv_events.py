"""Reads vLLM's KV events, for the driver and for the sanitizer. A hash stands there as a text.

The listener of a driven engine names its prefixes in their reports. It has what the scheduler has
published, and what waits in the block pool to be published. It takes nothing out: what waits, the
scheduler must publish itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from kvproof.live.observer.hooks import hooked
from kvproof.live.observer.view import Names
from kvproof.model.config.extra_keys import plain
from kvproof.model.kv_events import Cleared, Removed, Report, Stored


def event_hash(block_hash: Any) -> str:
    """The text for a block hash of a request or of the hash map, as in the reports."""
    return _text(maybe_convert_block_hash(block_hash))


def reports(events: Iterable[Any]) -> Iterator[Report]:
    """The reports of these events, in order. Each prefix is the text of a hash, and each token is
    the character of its id."""
    for event in events:
        if isinstance(event, AllBlocksCleared):
            yield Cleared()
        elif isinstance(event, BlockRemoved):
            yield from (Removed(event.group_idx, _text(each)) for each in event.block_hashes)
        else:
            yield _stored(event)


def _stored(event: BlockStored) -> Stored:
    parent = event.parent_block_hash
    after = getattr(event, "lookahead_token_ids", None) or ()  # older releases have none
    return Stored(
        event.group_idx,
        "" if parent is None else _text(parent),
        _characters(event.token_ids),
        tuple(map(_text, event.block_hashes)),
        tuple(map(_characters, after)),
    )


def _characters(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def _text(value: Any) -> str:
    """vLLM shows hashes as bytes or as numbers of 64 bits."""
    return value.hex() if isinstance(value, bytes) else f"{value:x}"


Prefixes = dict[tuple[int, str], str]
"""The prefix for each group and hash."""


class Listener:
    """A subscriber to the KV events of one engine. `news` are those that the last call of `reports`
    had, as vLLM wrote them."""

    def __init__(self, scheduler: Any, names: Names) -> None:
        self.pool = scheduler.kv_cache_manager.block_pool
        self.names = names
        self.published: list[Any] = []
        self.known: list[Any] = []
        self.waiting: list[Any] = []
        self.news: list[Any] = []
        publisher = scheduler.kv_event_publisher
        hooked(publisher, "publish", "events", before=self._published)

    def _published(self, batch: Any) -> None:
        self.published.extend(batch.events)

    def reports(self) -> tuple[Report, ...]:
        """The reports since the last call, in order. If events that waited then were published in
        another form, a subscriber received something else than was reported here: then all reports
        come again, after one that clears the mirror."""
        waited, self.waiting = self.waiting, list(self.pool.kv_event_queue)
        news, self.published = [*self.published, *self.waiting], []
        self.news = news[len(waited) :]
        self.known += news[: len(news) - len(self.waiting)]
        if news[: len(waited)] == waited:
            return self._named(news[len(waited) :])
        return (Cleared(), *self._named([*self.known, *self.waiting]))

    def _named(self, events: list[Any]) -> tuple[Report, ...]:
        prefixes = {
            (group, event_hash(value)): prefix
            for (group, value), prefix in self.names.prefixes.items()
        }
        return tuple(named(report, prefixes) for report in reports(events))


def named(report: Report, prefixes: Prefixes) -> Report:
    """The report with the prefixes that its hashes stand for."""
    if isinstance(report, Cleared):
        return report
    group = report.group

    def prefix(value: str) -> str:
        return prefixes.get((group, value), f"unknown {value}")

    if isinstance(report, Removed):
        return Removed(group, prefix(report.prefix))
    stored = tuple(map(prefix, report.prefixes))
    last = stored[-1] if stored else ""
    covered = len(report.lookahead[-1]) if report.lookahead else 0
    return Stored(
        group,
        report.parent and prefix(report.parent),
        _letters(report.tokens, last[: len(last) - covered]),
        stored,
        tuple(map(_letters, report.lookahead, stored)),
    )


def _letters(tokens: str, prefix: str) -> str:
    """Write tokens in the letters of the prefix that ends with them. An event contains neither
    extra keys nor embedded tokens, whose id is 0."""
    text = prefix[len(prefix) - len(tokens) :] if len(prefix) >= len(tokens) else ""
    wanted = "".join(chr(0) if token.isupper() else token for token in plain(text))
    return text if wanted == tokens else tokens
