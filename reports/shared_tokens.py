"""What the requests of a trace or a record share with earlier ones, and why it was not hit."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from kvproof.invariants import why_not_hit
from kvproof.invariants.arithmetic import in_common
from kvproof.invariants.why_not_hit import Earlier, Lost, PromptLookup, Shared
from kvproof.model.config import EngineConfig
from kvproof.model.events import (
    Admit,
    Choice,
    Complete,
    Event,
    Evict,
    Preempt,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
)
from kvproof.model.hit_rows import KINDS, HitRow, sentence
from kvproof.model.records.record import Record
from kvproof.model.state import FAILED, LOADED, LOADING
from kvproof.model.traces.state_diff import nested
from kvproof.model.traces.trace import Trace


def rows_of_record(record: Record) -> tuple[HitRow, ...]:
    """The rows of all admissions in a record."""
    return tuple(each.row for happened in record.events for each in happened.event.shared)


def rows_of_trace(trace: Trace) -> tuple[HitRow, ...]:
    """The rows of all admissions in a trace; none where no states were recorded."""
    engines = [_Engine(cfg) for cfg in trace.cluster.engines if cfg.prefix_caching]
    found: list[HitRow] = []
    states = pairwise(nested(state)["engines"] for state in trace.states())
    for event, (before, after) in zip(trace.events, states, strict=False):
        for engine in engines:
            name = engine.cfg.name
            found += engine.rows(event, before[name], after[name])
    return tuple(row for row in found if row.tokens)


def total(rows: Iterable[HitRow]) -> tuple[HitRow, ...]:
    """The rows of many requests, in which rows of one kind for one reason are one row: what nothing
    explains first, and the reasons last."""
    tokens: Counter[HitRow] = Counter()
    for row in rows:
        tokens[replace(row, tokens=0)] += row.tokens
    found = (replace(row, tokens=count) for row, count in tokens.items() if count)
    return tuple(sorted(found, key=lambda row: (KINDS.index(row.kind), -row.tokens, row.why)))


def lines(rows: Iterable[HitRow]) -> tuple[str, ...]:
    """The rows as a sentence for people; no line where no tokens are shared."""
    tokens: Counter[str] = Counter()
    for row in rows:
        tokens[row.label] += row.tokens
    told = sentence(tokens)
    return (f"Prefix cache: {told}.",) if told else ()


class _Engine:
    """What one engine of a trace has computed so far, and what its cache has lost."""

    def __init__(self, cfg: EngineConfig) -> None:
        self.cfg = cfg
        self.earlier: dict[str, Earlier] = {}
        self.lost: dict[tuple[int, str], Lost] = {}

    def rows(self, event: Event, before: Any, after: Any) -> Iterator[HitRow]:
        """The rows of the requests that an event admits for the first time."""
        own = getattr(event, "engine", self.cfg.name) == self.cfg.name
        chosen = (event.chose or ()) if own and isinstance(event, Schedule) else ()
        takers = {block: group for each in chosen for block, group in _taken(each)}
        has, kept = _keys(after), set[tuple[int, str]]()
        for key, blocks in _keys(before).items():
            if blocks & has.get(key, set()) - takers.keys():
                kept.add(key)
            else:
                groups = [takers[block] for block in blocks if block in takers]
                self.lost[key] = self._why_lost(event, key[0], groups) if own else Lost(None)
        for each in chosen:
            if isinstance(each, Admit) and each.request not in self.earlier:
                tokens = _tokens(before["requests"][each.request])
                yield from why_not_hit.rows(self.cfg, self._facts(each, tokens, kept))
                self.earlier[each.request] = Earlier(tokens)
        if own and isinstance(event, ResetPrefixCache | ResetRunning) and not has:
            self.lost.clear()
            for earlier in self.earlier.values():
                earlier.reset = True
        left = after.get("requests", {})
        for name, request in left.items():
            self._computed(name, request)
        for name in self.earlier.keys() - left.keys():
            self.earlier[name].ended = True

    def _computed(self, name: str, request: Any) -> None:
        """Note how much of a request is computed. Tokens of a load are not before its end."""
        earlier = self.earlier.get(name)
        if earlier is None:
            return
        if earlier.reset:
            earlier = self.earlier[name] = Earlier(earlier.tokens)
        earlier.tokens = tokens = _tokens(request)
        loads = request["status"] in (LOADING, LOADED, FAILED)
        computed = min(request["computed"], request["hit"] if loads else len(tokens))
        earlier.compute(self.cfg, computed, len(request["prompt"]))

    def _facts(self, admitted: Admit, tokens: str, cached: set[tuple[int, str]]) -> PromptLookup:
        shared = Shared()
        for each in self.earlier.values():
            shared = shared.more(each, in_common(each.tokens, tokens))
        return PromptLookup(
            known=len(tokens),
            shared=shared,
            hit=admitted.local_hit,
            loaded=admitted.external,
            cached=lambda group, end: (group, tokens[:end]) in cached,
            lost=lambda group, end: self.lost.get((group, tokens[:end])),
        )

    def _why_lost(self, event: Event, group: int, takers: list[int]) -> Lost:
        """Why an event of this engine lost an entry of a group; `takers` are the groups that took
        its blocks."""
        if takers:
            return why_not_hit.evicted_by(self.cfg, takers[0])
        if isinstance(event, Evict):
            return Lost(why_not_hit.ON_DEMAND)
        if isinstance(event, Complete) and event.failed:
            return Lost(why_not_hit.LOAD_FAILED)
        if isinstance(event, Schedule) and any(isinstance(c, Preempt) for c in event.chose or ()):
            return Lost(why_not_hit.PREEMPTED)
        return why_not_hit.lost_otherwise(self.cfg, group)


def _taken(chosen: Choice) -> Iterator[tuple[int, int]]:
    """The blocks that a choice takes, each with its group."""
    for group, blocks in enumerate(getattr(chosen, "taken", ())):
        for block in blocks:
            yield block, group


def _keys(engine: Any) -> dict[tuple[int, str], set[int]]:
    """The entries of the cache: the blocks by group and prefix."""
    return {(group, prefix): set(blocks) for (group, prefix), blocks in engine["cached"] if blocks}


def _tokens(request: Any) -> str:
    return str(request["prompt"] + request["output"])
