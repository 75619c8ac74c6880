"""Prompts that come again."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.model.ghost_state import Served
from kvproof.model.needs import Need
from kvproof.model.step import Effects
from kvproof.watch.happening import Looked
from kvproof.watch.parts.admissions import TOKENS_MAX, TOO_LONG, admission_of, looks_up
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest
from kvproof.watch.tokens import Tokens

KEPT = 64
"""The number of served prompts that are known, at most."""


class Repeated(Part):
    """The hit of each admission, with served prompts that share more than the hit.

    A prompt counts as served from the step on that ends its prefill. All are forgotten when a cache
    entry is lost: so less is required than could be."""

    view = Views.REPEATED.value

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.served: deque[tuple[Tokens, int]] = deque(maxlen=KEPT)
        self.prefilling: dict[str, WatchedRequest] = {}
        self.everywhere = all(group.kind == "full" for group in self.cfg.groups)

    def hidden(self) -> Mapping[Need, str]:
        """What the shape of the engine has more than the invariants know."""
        return self.seen.shape.hidden

    def questions(self) -> Iterator[Question]:
        """One admission after the other."""
        event = self.seen.event
        for looked in event.looked:
            in_time = event.lost is None or event.lost >= looked.since
            if in_time and self.served and looks_up(self.cfg, looked):
                yield from self._admitted(looked)
        if event.lost is not None:
            self.served.clear()
            self.prefilling.clear()
        self._note(event.looked)

    def _admitted(self, looked: Looked) -> Iterator[Question]:
        known, hit = looked.watched.live.num_tokens, looked.hit
        cut = 0 if self.cfg.partial_block_hits else hit // self.slices.unit * self.slices.unit
        if known - cut > TOKENS_MAX:
            self.seen.unjudged[TOO_LONG] += 1
            return
        served = tuple(
            Served(tokens.text(cut, end), 0)
            for tokens, end in self.served
            if end > hit and tokens.shares(looked.watched.tokens, hit + 1)
        )
        admission = admission_of(self.cfg.name, looked, cut, known, (), served)
        yield self.question(effects=Effects(admissions=(admission,)))

    def _note(self, admitted: list[Looked]) -> None:
        """Note whose prefill has begun, and whose is over."""
        for looked in admitted:
            live = looked.watched.live
            if not getattr(live, "resumable", False) and (self.everywhere or not looked.external):
                self.prefilling[live.request_id] = looked.watched
        if self.seen.event.what != "update_from_output":
            return
        for name, watched in list(self.prefilling.items()):
            live = watched.live
            if live.num_output_tokens or live.is_finished():
                del self.prefilling[name]
                if live.num_output_tokens:
                    self.served.append((watched.tokens, live.num_prompt_tokens))
