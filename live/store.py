"""A store-type connector for vLLM: the environment of an engine with a store, as in the reference's
`features.store`.

It extends vLLM's base class, and vLLM's factory loads it. It answers the scheduler in the same
step, so no request waits; its worker side is `Worker.load`. The adapter sets the prefixes that it
has, because there is no KV to save. vLLM's own example of a store does not support hybrid caches.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

from kvproof.live.fake import Fake
from kvproof.live.observer import view
from kvproof.model.environment import stores
from kvproof.model.state import Request, Table


class StoreLoad(NamedTuple):
    """A load for the worker: fill the blocks of a request with `external` tokens after its local
    `hit` (both in tokens)."""

    request: str
    tables: tuple[Table, ...]
    hit: int
    external: int


class Loads(KVConnectorMetadata):  # type: ignore[misc]
    """The connector metadata of a step: the loads of the worker before the step runs."""

    def __init__(self, loads: tuple[StoreLoad, ...]) -> None:
        self.loads = loads


class Storeless(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """A connector that stores nothing, and therefore matches nothing and keeps no blocks."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:  # noqa: ARG002
        """Match no tokens."""
        return 0, False

    def update_state_after_alloc(self, *_: Any) -> None:
        """Load nothing."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:  # noqa: ARG002
        """Give the worker nothing to do."""
        return KVConnectorMetadata()

    def request_finished_all_groups(self, *_: Any) -> tuple[bool, None]:
        """Keep no blocks."""
        return False, None

    def start_load_kv(self, *_: Any, **__: Any) -> None:
        """Load nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing."""

    def save_kv_layer(self, *_: Any, **__: Any) -> None:
        """Save nothing."""

    def wait_for_save(self) -> None:
        """Wait for nothing."""


class StoreConnector(Fake, Storeless):
    """The scheduler side of a store. `stored` has the prefixes that it can load, and `known` the
    jobs of its requests: their letters say what KV belongs to besides token ids."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.stored: tuple[str, ...] = ()
        self.known: Mapping[str, Request] = {}
        self.hits: dict[str, int] = {}
        self.loads: list[StoreLoad] = []

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """The number of tokens after the local hit that the store loads in the same step. NIXL may
        have taken the last token of a prompt away on P."""
        self.hits[request.request_id] = num_computed_tokens
        tokens = view.text_of(request, self.known[request.request_id])[: request.num_tokens]
        return max(stores.offered(self.stored, tokens) - num_computed_tokens, 0), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Record the blocks of the request to fill."""
        if num_external_tokens:
            tables = tuple(tuple(ids) for ids in blocks.get_block_ids())
            hit = self.hits[request.request_id]
            self.loads.append(StoreLoad(request.request_id, tables, hit, num_external_tokens))

    def build_connector_meta(self, scheduler_output: Any) -> Loads:  # noqa: ARG002
        """The loads of this step."""
        loads, self.loads = tuple(self.loads), []
        return Loads(loads)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Do nothing: the store does not use the engine's pool."""

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Let the blocks be freed at once, because the store copied their content in the step that
        computed it."""
        return self.request_finished_all_groups(request, block_ids)

    def request_finished_all_groups(
        self,
        request: Any,
        block_ids: Any,  # noqa: ARG002
    ) -> tuple[bool, None]:
        """Do the same for several cache groups."""
        self.hits.pop(request.request_id, None)
        return False, None
