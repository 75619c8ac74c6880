"""The buffers of the host through which NIXL copies where it cannot read the device."""

import importlib
from typing import Any

from kvproof.connectors.device.clock import Clock

WORKER = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker"


def emptied(_clock: Clock) -> Any:
    """In place of `initialize_host_xfer_buffer`: the buffers hold nothing. What was in this memory
    before, perhaps the KV of an equal episode, would make a copy look right that is not made."""
    begin = importlib.import_module(WORKER).NixlBaseConnectorWorker.initialize_host_xfer_buffer

    def initialize(worker: Any, *parts: Any, **named: Any) -> None:
        begin(worker, *parts, **named)
        for buffer in worker.host_xfer_buffers.values():
            buffer.zero_()

    return initialize
