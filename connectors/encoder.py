"""The encoder cache of a worker: which images it has, as `GPUModelRunner` keeps them.

The scheduler says which inputs the encoder computes in a step, and which outputs are dropped. A
step gathers the output of each image of which it computes a token. What a drafter reads, one token
ahead, is among that; it does without an image that only begins after the step.
"""

from collections.abc import Iterator
from typing import Any

from kvproof.connectors.facts import ItemMissing, ItemsHeld, ItemsOwed


class EncoderCache:
    """The outputs of the encoder by the hash of their image, in tokens. `room` is how many tokens
    fit; 0 means that the engine takes no images."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.read = 0
        self.held: dict[str, int] = {}
        self.features: dict[str, Any] = {}

    def fit(self, scheduler: Any) -> None:
        """Give the scheduler this room. An engine computes it from its model; here it is set."""
        if self.room:
            kind = type(scheduler.encoder_cache_manager)
            scheduler.encoder_cache_manager = kind(cache_size=self.room)
            scheduler.max_num_encoder_input_tokens = self.room

    def step(self, output: Any, starts: dict[str, int]) -> Iterator[ItemMissing | ItemsHeld]:
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
        if sum(self.held.values()) > self.room:
            yield ItemsHeld(sum(self.held.values()), self.room)
        for request, tokens in output.num_scheduled_tokens.items():
            yield from self._missing(request, starts[request], starts[request] + tokens)

    def _missing(self, request: str, start: int, end: int) -> Iterator[ItemMissing]:
        for feature in self.features.get(request, ()):
            first = feature.mm_position.offset
            last = first + feature.mm_position.length
            read = first < end and last > start
            self.read += read
            if read and feature.identifier not in self.held:
                yield ItemMissing(request, feature.identifier, max(first, start))

    def owed(self, scheduler: Any) -> Iterator[ItemsOwed]:
        """What an idle engine has taken of its room, if that is not what the worker has."""
        if not self.room:
            return
        manager = scheduler.encoder_cache_manager
        there = sum(count for name, count in self.held.items() if name not in manager.freed)
        taken = self.room - manager.num_free_slots
        used = self.room - manager.num_freeable_slots
        if taken != there or used:
            yield ItemsOwed(taken, there, used)
