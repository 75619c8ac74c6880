"""The buffers of the host through which NIXL copies where it cannot read the device."""

import importlib
from typing import Any

from kvproof.connectors.device.clock import Clock

WORKER = "vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker"


def emptied(_clock: Clock) -> Any:
    """Replace `initialize_host_xfer_buffer` by a function whose buffers are empty. The old content
    of the memory, perhaps the KV of an equal episode, could make a copy look right that was never
    made."""
    begin = importlib.import_module(WORKER).NixlBaseConnectorWorker.initialize_host_xfer_buffer

    def initialize(worker: Any, *parts: Any, **named: Any) -> None:
        begin(worker, *parts, **named)
        for buffer in worker.host_xfer_buffers.values():
            buffer.zero_()

    return initialize
