"""A connector that stores nothing, for what no connector has a part in: the encoder cache."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


class Storeless(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Nothing is stored, so nothing is matched."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:  # noqa: ARG002
        """No tokens."""
        return 0, False

    def update_state_after_alloc(self, *_: object) -> None:
        """Nothing is loaded."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:  # noqa: ARG002
        """Nothing for the worker to do."""
        return KVConnectorMetadata()

    def request_finished_all_groups(self, *_: object) -> tuple[bool, None]:
        """No blocks are kept."""
        return False, None

    def start_load_kv(self, *_: object, **__: object) -> None:
        """Nothing is loaded."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded."""

    def save_kv_layer(self, *_: object, **__: object) -> None:
        """Nothing is saved."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""
