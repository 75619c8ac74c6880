"""These parts show an engine that has no requests."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.live.observer import kept, view
from kvproof.model.needs import Need
from kvproof.model.numbered import Counted
from kvproof.model.state import Engine
from kvproof.model.step import Effects
from kvproof.watch.parts.blocks import holds_blocks
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views

ENTERED = ("vllm.v1.core.",)
LEFT_OUT = (
    *kept.LEFT_OUT,
    *("vllm.v1.core.encoder_cache_manager", "vllm.v1.core.kv_cache_metrics"),
)
"""Caches of a running engine, which grow on purpose, are elsewhere."""


class IdleBlocks(Part):
    """The number of free blocks of an engine that has nothing to do any more."""

    view = Views.IDLE

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.was_idle = True

    def hidden(self) -> Mapping[Need, str]:
        """Hide the free blocks where some blocks may belong to nobody's request."""
        pool = self.slices.pool
        why = ""
        if holds_blocks(self.scheduler.connector):
            why = "the connector holds blocks by itself"
        if pool.get_num_free_blocks() != len(pool.blocks) - 1:
            why = "some blocks were taken before it was watched"
        return {Need.FREE_WHEN_IDLE: why} if why else {}

    def questions(self) -> Iterator[Question]:
        """Ask once each time that the engine has become idle."""
        idle = self.seen.is_idle
        if idle and not self.was_idle:
            pool = self.slices.pool
            blocks, free = Counted(len(pool.blocks)), Counted(pool.get_num_free_blocks())
            yield self.question(Engine(self.cfg.name, blocks, free))  # type: ignore[arg-type]
        self.was_idle = idle


class KeptItems(Part):
    """What the scheduler and its KV cache manager keep from one idle time to the next. Caches of
    other parts of vLLM grow on purpose."""

    view = Views.KEPT

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.leftovers = kept.Leftovers(self.scheduler, self.cfg.name, ENTERED, LEFT_OUT)
        self.times = 0
        self.waited = 1

    def questions(self) -> Iterator[Question]:
        """Ask after ever more events, because the containers are read whole."""
        idle = self.seen.is_idle
        if self.seen.event.what == "schedule" and self.leftovers.left:
            yield self.question(effects=Effects(kept=self.leftovers.stepped()))
        elif idle and self.seen.event.what in ("update_from_output", "finish_requests"):
            deferred = view.deferred(self.scheduler)
            yield self.question(Engine(self.cfg.name, (), (), deferred=deferred))
            self.times += 1
            if self.times >= self.waited:
                self.waited *= 2
                self.leftovers.idle()
