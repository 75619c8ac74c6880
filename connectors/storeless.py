"""A connector that stores nothing, for episodes that test the encoder cache alone."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


class Storeless(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """A connector that stores nothing and therefore matches nothing."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:  # noqa: ARG002
        """Match no tokens."""
        return 0, False

    def update_state_after_alloc(self, *_: object) -> None:
        """Load nothing."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:  # noqa: ARG002
        """Give the worker nothing to do."""
        return KVConnectorMetadata()

    def request_finished_all_groups(self, *_: object) -> tuple[bool, None]:
        """Keep no blocks."""
        return False, None

    def start_load_kv(self, *_: object, **__: object) -> None:
        """Load nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing."""

    def save_kv_layer(self, *_: object, **__: object) -> None:
        """Save nothing."""

    def wait_for_save(self) -> None:
        """Wait for nothing."""
