"""What only events change: a test that changes it between two events builds a state by hand."""

from collections.abc import Iterator
from typing import Any

PARTS = ("kv_cache_manager", "connector", "requests")
"""The parts of a scheduler that stay the same objects."""


class Between:
    """What was seen of an engine at the end of the last event."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.note()

    def note(self) -> None:
        """An event is over."""
        self.seen = dict(self._now())

    def changed(self) -> str:
        """What has changed since the last event, empty if nothing."""
        now = dict(self._now())
        for what in (*self.seen, *now):
            if self.seen.get(what) != now.get(what):
                return f"{what} changed between two events"
        return ""

    def _now(self) -> Iterator[tuple[str, Any]]:
        scheduler = self.scheduler
        for name in PARTS:
            yield f"the scheduler's {name}", id(getattr(scheduler, name))
        manager = scheduler.kv_cache_manager
        yield "the manager's block_pool", id(manager.block_pool)
        yield "the number of free blocks", manager.block_pool.get_num_free_blocks()
        yield "the running requests", tuple(each.request_id for each in scheduler.running)
        known = scheduler.requests.values()
        yield "the known requests", tuple(each.request_id for each in known)
        for name in ("status", "num_computed_tokens", "num_tokens"):
            yield f"the {name} of a request", tuple(getattr(each, name) for each in known)
