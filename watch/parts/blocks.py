"""The blocks of the pool and the entries of the prefix cache that an event touches or changes, and
what an engine keeps that has no requests."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm.v1.core.kv_cache_utils import get_group_id

from kvproof.live.observer import kept, view
from kvproof.model.events import (
    Abort,
    Complete,
    Compute,
    Event,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
    Submit,
)
from kvproof.model.finding import Finding
from kvproof.model.needs import Need
from kvproof.model.numbered import Counted, Some
from kvproof.model.state import Block, Engine, Key, Request
from kvproof.model.step import Effects
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class TouchedBlocks(Part):
    """The blocks that an event touches, with all requests that hold them and all their keys."""

    view = Views.BLOCKS

    def hidden(self) -> Mapping[Need, str]:
        """Hide the reference counts where a connector may hold blocks by itself."""
        if not holds_blocks(self.scheduler.connector):
            return {}
        return {Need.REFERENCES: "the connector holds references to blocks, too"}

    def questions(self) -> Iterator[Question]:
        """Ask about all touched blocks at once."""
        blocks = {block for block in self.seen.blocks if block >= 0}
        if blocks:
            yield self.question(self.slices.of_blocks(blocks))


def holds_blocks(connector: Any) -> bool:
    """Whether a connector gets the block pool, to hold blocks of it by itself."""
    mine = getattr(type(connector), "bind_gpu_block_pool", None)
    bases = type(connector).__mro__[1:]
    base = next((b for b in bases if b.__name__ == "KVConnectorBase_V1"), None)
    return mine is not getattr(base, "bind_gpu_block_pool", None)


UNSEEN = "cache entries whose content was never seen written"


class CachedBlocks(Part):
    """The blocks that an event caches, with their content and the prefixes that their keys name."""

    view = Views.CACHED

    def questions(self) -> Iterator[Question]:
        """Ask about all blocks at once."""
        engine, looked, unseen = self.slices.of_content(self.seen.named.values())
        unseen += self.seen.nameless
        if unseen:
            self.seen.unjudged[UNSEEN] += unseen
        if looked:
            yield self.question(engine, times=looked)

    def found(self, finding: Finding) -> None:
        """Forget the content of the wrong block: each later read of it would be a finding too."""
        self.seen.contents.forget(finding.about.block or 0)


FAILED = "cache entries lost at a failed load, because it is not known whose blocks it spoils"


class Changed(Part):
    """A part that compares the engine before and after an event."""

    def hidden(self) -> Mapping[Need, str]:
        """Hide everything where a connector may hold blocks, and evict them, by itself."""
        why = (
            "the connector holds blocks by itself" if holds_blocks(self.scheduler.connector) else ""
        )
        return dict.fromkeys(self.view.shows, why) if why else {}

    def event(self) -> Event | None:
        """Return the event in the words of the spec; None for an event that drops entries on
        purpose."""
        name, fresh = self.cfg.name, tuple(self.seen.event.fresh)
        found: dict[str, Event] = {
            "schedule": Schedule(name, (Compute("", 1, taken=(fresh,)),)),
            "update_from_output": Complete(name),
            "finish_requests": Abort(name, ""),
            "add_request": Submit(name, ""),
        }
        return found.get(self.seen.event.what)


class Gained(Changed):
    """The blocks whose reference count an event changes that is no step."""

    view = Views.GAINED

    def questions(self) -> Iterator[Question]:
        """Ask about all blocks at once."""
        references, event = self.seen.event.references, self.event()
        if not references or event is None or isinstance(event, Schedule):
            return
        blocks = self.slices.pool.blocks
        before: Any = Some({number: Block(refs) for number, refs in references.items()})
        after: Any = Some({number: Block(blocks[number].ref_cnt) for number in references})
        name = self.cfg.name
        yield self.question(Engine(name, after, ()), before=Engine(name, before, ()), event=event)


class LostEntries(Changed):
    """The cache entries that an event loses, with the blocks that it takes."""

    view = Views.ENTRIES

    def hidden(self) -> Mapping[Need, str]:
        """Hide lost entries where an entry may be replaced by a longer one of the same block."""
        if self.cfg.partial_block_hits or Need.STATES_KEPT in self.seen.shape.hidden:
            return {Need.LOST_ENTRIES: "a block may be cached under a longer prefix later"}
        return super().hidden()

    def questions(self) -> Iterator[Question]:
        """Ask about all entries at once."""
        event_notes, event = self.seen.event, self.event()
        if not event_notes.unmapped or event is None:
            return
        if event_notes.invalid:
            self.seen.unjudged[FAILED] += len(event_notes.unmapped)
            return
        before, after = dict[Key, set[int]](), dict[Key, set[int]]()
        entries, blocks = self.slices.pool.cached_block_hash_to_block._cache, Some[Block]()
        for key, number in event_notes.unmapped:
            name = get_group_id(key), bytes(key).hex()
            now = set(view.blocks_of(entries.get(key)))
            after[name] = now
            before.setdefault(name, {number}).add(number)
            before[name] |= now - self.seen.mapped_now
            blocks[number] = Block(0)
        yield self.question(
            self._engine(blocks, after), before=self._engine(blocks, before), event=event
        )

    def _engine(self, blocks: Any, cached: Mapping[Key, set[int]]) -> Engine:
        entries = tuple((key, tuple(sorted(numbers))) for key, numbers in cached.items())
        return Engine(self.cfg.name, blocks, (), cached=entries)


class Resets(Part):
    """A reset, with the number of cache entries and the computed tokens of all requests."""

    view = Views.RESETS

    def questions(self) -> Iterator[Question]:
        """Ask about each reset."""
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
