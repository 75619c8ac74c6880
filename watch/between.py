"""What only events change. Where it changes between two events, a state is built by hand."""

from collections.abc import Iterator
from typing import Any


class Between:
    """What was seen of an engine at the end of the last event: which objects it consists of, and
    in a test suite (`tested`) its requests and the number of its free blocks. A connector may be
    replaced by another one: what connectors answer is taken to be right."""

    def __init__(self, scheduler: Any, *, tested: bool) -> None:
        self.scheduler = scheduler
        self.tested = tested
        self.note()

    def note(self) -> None:
        """An event is over."""
        self.seen = dict(self._now())

    def changed(self) -> str:
        """What has changed since the last event, empty if nothing."""
        now = dict(self._now())
        for what in self.seen:
            if self.seen[what] != now[what]:
                return f"{what} changed between two events"
        return ""

    def _now(self) -> Iterator[tuple[str, Any]]:
        scheduler = self.scheduler
        manager = scheduler.kv_cache_manager
        pool = manager.block_pool
        yield "the scheduler's kv_cache_manager", id(manager)
        yield "the manager's block_pool", id(pool)
        yield "whether the scheduler has a connector", scheduler.connector is not None
        if not self.tested:
            return
        known = scheduler.requests.values()
        yield "the known requests", tuple(each.request_id for each in known)
        yield "the running requests", tuple(each.request_id for each in scheduler.running)
        yield "the number of free blocks", pool.get_num_free_blocks()
        for name in ("status", "num_computed_tokens", "num_tokens"):
            yield f"the {name} of a request", tuple(getattr(each, name) for each in known)
