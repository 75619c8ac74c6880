"""Resets of the prefix cache."""

from collections.abc import Iterator
from typing import Any

from kvproof.model.events import ResetPrefixCache, ResetRunning
from kvproof.model.numbered import Counted
from kvproof.model.state import Engine, Request
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class Resets(Part):
    """A reset, with the number of cache entries and the computed tokens of all requests."""

    view = Views.RESETS.value

    def questions(self) -> Iterator[Question]:
        """Each reset."""
        event, name = self.seen.event, self.cfg.name
        if event.what != "reset_prefix_cache":
            return
        running = event.named.get("reset_running_requests", bool(event.args and event.args[0]))
        cached: Any = Counted(event.cached)
        left: Any = Counted(len(self.slices.pool.cached_block_hash_to_block))
        requests = tuple(
            Request(each.request_id, "", "", 0, 0, computed=each.num_computed_tokens)
            for each in self.scheduler.requests.values()
        )
        # A refused reset changes nothing, as far as this part has it.
        after = Engine(name, (), (), cached=left, requests=requests)
        yield self.question(
            after,
            before=after._replace(cached=cached),
            event=ResetRunning(name) if running else ResetPrefixCache(name),
            effects=Effects(resets=(name,) if event.result else ()),
        )
