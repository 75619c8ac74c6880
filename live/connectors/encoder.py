"""The encoder cache of a worker: which images it has, as `GPUModelRunner` keeps them.

The scheduler says which inputs the encoder computes in a step, and which outputs are dropped. A
step gathers the output of each image of which it computes a token. A drafter with layers reads one
token more: it goes on without an image that only begins there and was not encoded. An encoder-cache
connector, if the engine has one, loads before the encoder computes and saves what it computed
(`ECConnectorModelRunnerMixin`).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kvproof.live import adapt
from kvproof.live.encoder_settings import only_encodes
from kvproof.model.facts.connectors import (
    Fact,
    ItemDropped,
    ItemEncoded,
    ItemRead,
    ItemReadAhead,
    ItemsEncoded,
    ItemsHeld,
    ItemsOwed,
)


class EncoderCache:
    """The outputs of the encoder, by the hash of their image: `[tokens, 1]`, with the number of the
    image in each place. `room` is the number of tokens that fit; 0 means that the engine takes no
    images. A drafter reads `ahead` tokens after those of a step. `connector` is the worker side of
    the encoder-cache connector. An engine that is `alone` only encodes images for other engines and
    computes no token."""

    def __init__(self, room: int, vllm_config: Any, ahead: int = 0) -> None:
        self.room, self.ahead = room, ahead
        # Older releases always may.
        scheduling = vllm_config.scheduler_config
        self.may_cut = not getattr(scheduling, "disable_chunked_mm_input", False)
        self.done: list[Fact] = []
        self.encoded: set[str] = set()
        self.manager: Any = None
        self.connector: Any = None
        self.held: dict[str, torch.Tensor] = {}
        self.features: dict[str, Any] = {}
        settings = getattr(vllm_config, "ec_transfer_config", None)
        self.alone = only_encodes(vllm_config.kv_transfer_config.kv_connector_extra_config)
        if settings is not None:
            from vllm.distributed.ec_transfer import ec_transfer_state
            from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
            from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

            self.state = ec_transfer_state
            self.connector = ECConnectorFactory.create_connector(
                vllm_config, ECConnectorRole.WORKER
            )

    def fit(self, scheduler: Any) -> None:
        """Set the size of the scheduler's encoder cache. An engine computes it from its model; here
        it is set."""
        if self.room:
            kind = type(scheduler.encoder_cache_manager)
            scheduler.encoder_cache_manager = self.manager = kind(cache_size=self.room)
            scheduler.max_num_encoder_input_tokens = self.room

    def compute(self, output: Any) -> Any:
        """Drop, load and compute outputs, and return the connector's report. Afterwards `done` has
        the facts about what was dropped and what was encoded."""
        for new in output.scheduled_new_reqs:
            self.features[new.req_id] = new.mm_features
        cached = self.manager.cached
        self.done = [ItemDropped(n, n in cached) for n in output.free_encoder_mm_hashes]
        for name in output.free_encoder_mm_hashes:
            self.held.pop(name, None)
        with self._transfers(output) as moved:
            for request, inputs in output.scheduled_encoder_inputs.items():
                for index in inputs:
                    feature = self.features[request][index]
                    name = feature.identifier
                    again = name in self.encoded
                    self.done.append(ItemEncoded(request, name, again, name in self.held))
                    self.held[name] = made_of(feature)
                    self.encoded.add(name)
                    if self.connector is not None:
                        self.connector.save_caches(self.held, name)
        return moved

    def _transfers(self, output: Any) -> AbstractContextManager[Any]:
        if self.connector is None:
            return nullcontext()
        self.state._EC_CONNECTOR_AGENT = self.connector
        mixin = adapt.named("ECConnectorModelRunnerMixin")
        calls: AbstractContextManager[Any] = mixin.maybe_get_ec_connector_output(output, self.held)
        return calls

    def reads(self, output: Any, starts: dict[str, int]) -> Iterator[Fact]:
        """Read the outputs that a step needs, and yield the facts about them."""
        yield ItemsHeld(sum(map(len, self.held.values())), self.room)
        for request, tokens in output.num_scheduled_tokens.items():
            yield from self._reads(request, starts[request], starts[request] + tokens)

    def _reads(self, request: str, start: int, end: int) -> Iterator[Fact]:
        for feature in self.features.get(request, ()):
            first, name = feature.mm_position.offset, feature.identifier
            if end <= first < end + self.ahead:
                yield ItemReadAhead(request, name, first, name in self.held)
            if first >= end or first + feature.mm_position.length <= start:
                continue
            held, users = self.held.get(name), self.manager.cached.get(name, ())
            right = held is not None and torch.equal(held, made_of(feature))
            cut = end < first + feature.mm_position.length
            known = held is not None, right, request in users, cut, self.may_cut
            yield ItemRead(request, name, max(first, start), *known)

    def ended(self, request: Any) -> ItemsEncoded:
        """Whether all images of a request that has ended were encoded here."""
        images = {each.identifier for each in request.mm_features}
        lacking = tuple(sorted(images - self.encoded))
        return ItemsEncoded(request.request_id, len(images), lacking)

    def owed(self) -> Iterator[Fact]:
        """The room that an idle engine has taken in its encoder cache. An engine that only encodes
        does not load the images for which it takes room."""
        if self.room and not self.alone:
            manager = self.manager
            there = sum(len(made) for name, made in self.held.items() if name not in manager.freed)
            used = self.room - manager.num_freeable_slots
            yield ItemsOwed(self.room - manager.num_free_slots, there, used)


def made_of(feature: Any) -> torch.Tensor:
    """The encoder's output for an image: `[tokens, 1]`, with the image's number in each place."""
    return torch.full((feature.mm_position.length, 1), float(ord(feature.identifier[0])))
