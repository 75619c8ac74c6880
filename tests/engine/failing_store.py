"""vLLM's example of a connector that keeps KV in files, with loads that can be made to fail, or to
fill the right blocks in a wrong order."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector

fails = pairs_wrongly = False
failed: list[int] = []
"""Whether loads fail, or are wrong, and the blocks of those that failed."""


def fail(_llm: Any, now: bool) -> int:
    """Let loads fail from now on, or not. Returns the number of blocks that failed so far."""
    global fails
    fails = now
    return len(failed)


def pair_wrongly(_llm: Any) -> None:
    """Let each load put the content of a block into the next one, and that of the last into the
    first."""
    global pairs_wrongly
    pairs_wrongly = True


class FailingStore(ExampleConnector):
    """A load that fails leaves its blocks as they are, and says so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.invalid: set[int] = set()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if not fails:
            for request in self._get_connector_metadata().requests if pairs_wrongly else ():
                if not request.is_store:
                    request.slot_mapping = request.slot_mapping.roll(self._block_size)
            super().start_load_kv(forward_context, **kwargs)
            return
        for request in self._get_connector_metadata().requests:
            if not request.is_store:
                blocks = {int(slot) // self._block_size for slot in request.slot_mapping}
                self.invalid |= blocks
                failed.extend(sorted(blocks))

    def get_block_ids_with_load_errors(self) -> set[int]:
        invalid, self.invalid = self.invalid, set()
        return invalid
