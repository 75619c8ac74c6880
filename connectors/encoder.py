"""The encoder cache of a worker: which images it has, as `GPUModelRunner` keeps them.

The scheduler says which inputs the encoder computes in a step, and which outputs are dropped. A
step gathers the output of each image of which it computes a token. What a drafter reads, one token
ahead, is among that; it does without an image that only begins after the step.
"""

from collections.abc import Iterator
from typing import Any

from kvproof.connectors.facts import ItemMissing, ItemsHeld, ItemsOwed, ItemUnkept


class EncoderCache:
    """The outputs of the encoder by the hash of their image, in tokens. `room` is how many tokens
    fit; 0 means that the engine takes no images."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.read = 0
        self.manager: Any = None
        self.held: dict[str, int] = {}
        self.features: dict[str, Any] = {}

    def fit(self, scheduler: Any) -> None:
        """Give the scheduler this room. An engine computes it from its model; here it is set."""
        if self.room:
            kind = type(scheduler.encoder_cache_manager)
            scheduler.encoder_cache_manager = self.manager = kind(cache_size=self.room)
            scheduler.max_num_encoder_input_tokens = self.room

    def step(
        self, output: Any, starts: dict[str, int]
    ) -> Iterator[ItemMissing | ItemUnkept | ItemsHeld]:
        """A step: outputs are dropped and computed, and those that it reads must be there. Then
        `read` is how many it reads."""
        self.read = 0
        for new in output.scheduled_new_reqs:
            self.features[new.req_id] = new.mm_features
        for name in output.free_encoder_mm_hashes:
            self.held.pop(name, None)
        for request, inputs in output.scheduled_encoder_inputs.items():
            for index in inputs:
                feature = self.features[request][index]
                self.held[feature.identifier] = feature.mm_position.length
        yield ItemsHeld(sum(self.held.values()), self.room)
        for request, tokens in output.num_scheduled_tokens.items():
            yield from self._reads(request, starts[request], starts[request] + tokens)

    def _reads(self, request: str, start: int, end: int) -> Iterator[ItemMissing | ItemUnkept]:
        for feature in self.features.get(request, ()):
            first = feature.mm_position.offset
            if first >= end or first + feature.mm_position.length <= start:
                continue
            self.read += 1
            name = feature.identifier
            if name not in self.held:
                yield ItemMissing(request, name, max(first, start))
            elif request not in self.manager.cached.get(name, ()):
                yield ItemUnkept(request, name)

    def owed(self) -> Iterator[ItemsOwed]:
        """What an idle engine has taken of its room."""
        if self.room:
            manager = self.manager
            there = sum(count for name, count in self.held.items() if name not in manager.freed)
            used = self.room - manager.num_freeable_slots
            yield ItemsOwed(self.room - manager.num_free_slots, there, used)
