"""The capacity of OffloadingConnector's CPU tier, in every release.

Since vllm#43689 a chunk fills whole pages of memory there. The kit's blocks are far smaller than a
page, so before that the same bytes had room for many more chunks, and nothing was ever evicted.
"""

from collections.abc import Mapping
from typing import Any

from kvproof.connectors.device.replaced import OFFLOAD, found

BYTES = "cpu_bytes_to_use"

SMALLER = 16
"""The size of a memory page, in blocks of the kit."""

ROUNDS = f"{OFFLOAD}.cpu.shared_offload_region:SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT"

OLDER = (
    f"{OFFLOAD}.cpu.gpu_worker:CpuGpuOffloadingHandlers",
    f"{OFFLOAD}.worker.cpu_gpu:CpuGpuOffloadingHandlers",
)
"""Names that only releases before the rounding to pages have."""


def in_pages(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, for this vLLM, of a connector whose capacity is counted in pages."""
    rounds = found(ROUNDS) is not None or not any(found(place) for place in OLDER)
    return {**extra} if rounds else {**extra, BYTES: extra[BYTES] // SMALLER}
