"""Stores for the connector kit: one that loads and saves within the step, and one that loads in a
later step and saves when a request has ended. All keep whole blocks of prompts in a dict."""

from typing import Any, ClassVar

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

Key = tuple[Any, ...]
Copy = tuple[Key, int]
"""What the KV of a block depends on: the tokens up to its end, salt and adapter. And the block."""


class Plan(KVConnectorMetadata):
    """What the worker does in a step: loads and saves by request."""

    def __init__(self, loads: dict[str, list[Copy]], saves: dict[str, list[Copy]]) -> None:
        self.loads, self.saves = loads, saves


class Store(KVConnectorBase_V1):
    """Loads and saves within the step. `kept` is the memory of the store, shared by both sides."""

    later = False
    kept: ClassVar[dict[Key, dict[str, torch.Tensor]]] = {}

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.size = vllm_config.cache_config.block_size
        self.caches: dict[str, torch.Tensor] = {}
        self.requests: dict[str, Any] = {}
        self.offered: dict[str, int] = {}
        self.loads: dict[str, list[Copy]] = {}
        self.ended: dict[str, list[Copy]] = {}
        self.sent: set[str] = set()
        self.loaded: set[str] = set()
        if role == KVConnectorRole.SCHEDULER:
            self.kept.clear()

    # The scheduler's side.

    def copies(self, request: Any, blocks: list[int], first: int, last: int) -> list[Copy]:
        """The blocks from `first` up to `last` of a request, with their keys."""
        ids, beside = request.all_token_ids, self.beside(request)
        return [((*beside, *ids[: (i + 1) * self.size]), blocks[i]) for i in range(first, last)]

    def beside(self, request: Any) -> tuple[Any, ...]:
        """What the KV of a request depends on beside its tokens."""
        lora = request.lora_request.lora_name if request.lora_request else None
        return (request.cache_salt, lora)

    def stored_blocks(self, request: Any) -> int:
        """How many blocks at the beginning of a request are stored; its last token is computed."""
        whole = (request.num_tokens - 1) // self.size
        keys = [key for key, _ in self.copies(request, [0] * whole, 0, whole)]
        return next((i for i, key in enumerate(keys) if key not in self.kept), whole)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        self.requests[request.request_id] = request
        self.offered[request.request_id] = num_computed_tokens
        tokens = max(self.stored_blocks(request) * self.size - num_computed_tokens, 0)
        return tokens, self.later and tokens > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            first = self.offered[request.request_id] // self.size
            last = first + num_external_tokens // self.size
            table = blocks.get_block_ids()[0]
            self.loads[request.request_id] = self.copies(request, table, first, last)

    def build_connector_meta(self, scheduler_output: Any) -> Plan:
        saves = {}
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            request = self.requests[name]
            table = self._kv_cache_manager.get_block_ids(name)[0]
            last = self.computed_blocks(request, request.num_computed_tokens + tokens)
            saves[name] = self.copies(request, table, 0, last)
        made = Plan(self.loads, {} if self.later else saves)
        made.saves.update(self.ended)
        self.loads, self.ended = {}, {}
        return made

    def computed_blocks(self, request: Any, tokens: int) -> int:
        """The whole blocks of a prompt of which these first tokens are computed."""
        return min(tokens, request.num_prompt_tokens) // self.size

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        last = self.computed_blocks(request, request.num_computed_tokens)
        aborted = request.status.name == "FINISHED_ABORTED"  # with a load, see vllm#46240
        if not self.later or not last or aborted:
            return False, None
        self.ended[request.request_id] = self.copies(request, block_ids, 0, last)
        return True, None

    # The worker's side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self.caches = kv_caches

    def rows(self, cache: torch.Tensor, block: int) -> torch.Tensor:
        """A block of a layer: one row of its cache, or several where the kernel has smaller
        blocks."""
        number = cache.shape[0] // self._kv_cache_config.num_blocks
        return cache[block * number : (block + 1) * number]

    def start_load_kv(self, forward_context: Any, **_more: Any) -> None:  # noqa: ARG002
        for name, copies in self._connector_metadata.loads.items():
            for key, block in copies:
                for layer, cache in self.caches.items():
                    self.rows(cache, block)[:] = self.kept[key][layer]
            if self.later:
                self.loaded.add(name)

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, layer_name: str, kv_layer: Any, *_args: Any, **_more: Any) -> None:
        if not self.later:
            self.save(layer_name, kv_layer)

    def save(self, layer_name: str, kv_layer: torch.Tensor) -> None:
        """Save a layer of all blocks of this step."""
        for copies in self._connector_metadata.saves.values():
            for key, block in copies:
                rows = self.rows(kv_layer, block).clone()
                self.kept.setdefault(key, {}).setdefault(layer_name, rows)

    def wait_for_save(self) -> None:
        if self.later:
            for layer, cache in self.caches.items():
                self.save(layer, cache)
            self.sent.update(self._connector_metadata.saves)

    def get_finished(self, finished_req_ids: set[str]) -> Any:  # noqa: ARG002
        sent, self.sent = self.sent, set()
        loaded, self.loaded = self.loaded, set()
        return sent or None, loaded or None


class LaterStore(Store):
    """Loads in a later step, and saves when a request has ended; until then it keeps the blocks."""

    later = True


class GlobalStore(Store):
    """What one engine stored, the next one loads, as from a server that outlives its engines. It is
    for engines of one model and one size of blocks."""

    kept: ClassVar[dict[Key, dict[str, torch.Tensor]]] = {}

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        before = dict(self.kept)
        super().__init__(vllm_config, role, kv_cache_config)
        self.kept.update(before)


class SaltlessStore(GlobalStore):
    """One that forgets the salts of requests."""

    kept: ClassVar[dict[Key, dict[str, torch.Tensor]]] = {}

    def beside(self, request: Any) -> tuple[Any, ...]:
        return (None, *super().beside(request)[1:])
