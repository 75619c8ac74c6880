"""An external store of KV that loads within the step."""

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

TOKEN = ord(".")
STORE_UNIT = 1


class StoreConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """A store that has the prefixes in `stored` and loads them within the step."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.stored: list[list[int]] = []

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int, bool]:
        ids = list(request.all_token_ids)
        found = [len(p) for p in self.stored if p == ids[: len(p)] and p != ids]
        return max([num_computed_tokens, *found]) - num_computed_tokens, False

    def update_state_after_alloc(self, *_: Any, **__: Any) -> None: ...

    def build_connector_meta(self, *_: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, *_: Any) -> tuple[bool, None]:
        return False, None

    request_finished_all_groups = request_finished

    def start_load_kv(self, *_: Any, **__: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *_: Any, **__: Any) -> None: ...

    def wait_for_save(self) -> None: ...


def keep(scheduler: Scheduler, requests: Sequence[Request]) -> None:
    """The store keeps what the requests of a step have computed, without drafts."""
    for request in requests:
        computed = request.num_computed_tokens
        pending = [TOKEN] * (computed - request.num_tokens)  #@ early_store
        ids = [*request.all_token_ids, *pending][:computed]  #@ late_store: ids = list(request.all_token_ids)[:computed]
        ends = list(range(STORE_UNIT, len(ids) + 1, STORE_UNIT))
        ends = [computed] if computed in ends else []  #@ state
        scheduler.connector.stored += [ids[:end] for end in ends]


def lose(scheduler: Scheduler, name: str, length: int) -> None:
    """The load of a request has failed: the store has lost what it had of it."""
    lost = list(scheduler.requests[name].all_token_ids)[:length]
    stored = scheduler.connector.stored
    scheduler.connector.stored = [p for p in stored if p[:length] != lost]
