"""vLLM's example of a connector that extracts hidden states, without its files: it writes them with
CUDA streams."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
)


class Extracting(ExampleHiddenStatesConnector):
    """Writes no file."""

    def request_finished_all_groups(self, *_: Any) -> tuple[bool, None]:
        return False, None

    def wait_for_save(self) -> None: ...

    def get_finished(self, *_: Any) -> tuple[None, None]:
        return None, None
