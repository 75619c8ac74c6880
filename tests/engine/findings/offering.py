"""A connector that offers the first 64 tokens of a prompt of 69, within the step. It loads nothing:
what counts is whether the engine lives."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


class Offering(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """It has the tokens of one prompt."""

    def get_num_new_matched_tokens(self, request: Any, computed: int) -> tuple[int, bool]:
        return (64 - computed if request.num_prompt_tokens == 69 else 0), False

    def update_state_after_alloc(self, *_: Any) -> None: ...

    def build_connector_meta(self, *_: Any) -> Any:
        return KVConnectorMetadata()

    def start_load_kv(self, *_: Any, **__: Any) -> None: ...

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, *_: Any, **__: Any) -> None: ...

    def wait_for_save(self) -> None: ...

    def request_finished_all_groups(self, *_: Any) -> tuple[bool, None]:
        return False, None
