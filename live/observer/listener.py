"""Receives the KV events of a real engine and converts them to the reports of `model.kv_events`.

It takes all events: first those that the scheduler publishes, then those that
`KVCacheManager.take_events` still has.
"""

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import BlockHash, maybe_convert_block_hash

from kvproof.live import adapt
from kvproof.live.observer.view import Names
from kvproof.model.config.extra_keys import plain
from kvproof.model.kv_events import Cleared, Removed, Report, Stored


class Listener:
    """A subscriber of one engine."""

    def __init__(self, scheduler: Any, names: Names) -> None:
        self.manager = scheduler.kv_cache_manager
        self.names = names
        self.published: list[Any] = []
        publisher = scheduler.kv_event_publisher
        publish = publisher.publish

        def received(batch: Any) -> None:
            self.published.extend(batch.events)
            publish(batch)

        publisher.publish = received

    def reports(self) -> tuple[Report, ...]:
        """The reports since the last call, in order."""
        events = [*self.published, *self.manager.take_events()]
        self.published = []
        prefixes = {
            (group, maybe_convert_block_hash(BlockHash(value))): prefix
            for (group, value), prefix in self.names.prefixes.items()
        }
        return tuple(self._report(event, prefixes) for event in events)

    @staticmethod
    def _report(event: Any, prefixes: dict[tuple[int, Any], str]) -> Report:
        if isinstance(event, AllBlocksCleared):
            return Cleared()

        def prefix(value: Any) -> str:
            return prefixes.get((event.group_idx, value), f"unknown {value!r}")

        if isinstance(event, BlockRemoved):
            (value,) = event.block_hashes
            return Removed(event.group_idx, prefix(value))
        assert isinstance(event, BlockStored)
        parent = event.parent_block_hash
        stored = tuple(map(prefix, event.block_hashes))
        return Stored(
            event.group_idx,
            "" if parent is None else prefix(parent),
            _letters(event.token_ids, stored[-1] if stored else ""),
            stored,
            tuple("".join(map(chr, ids)) for ids in adapt.lookahead(event)),
        )


def _letters(ids: Sequence[int], prefix: str) -> str:
    """Token ids in the letters of a prefix that ends with them: an event names neither extra keys
    nor embedded tokens, whose id is 0."""
    text = prefix[len(prefix) - len(ids) :] if len(prefix) >= len(ids) else ""
    wanted = (0 if token.isupper() else ord(token) for token in plain(text))
    return text if list(wanted) == list(ids) else "".join(map(chr, ids))
