"""A NIXL agent that transfers nothing, for releases whose NIXL worker trims block lists while it
reads.

Up to 0.21 the trimming is part of `_read_blocks`. That method runs unchanged; this module records
the lists for which it requests descriptors, P's first and D's second. vLLM itself asserts that they
have equal lengths.
"""

import inspect
from collections import defaultdict
from typing import Any

import numpy as np

from kvproof.live.adapt import accepted
from kvproof.live.fake import Fake, FakeSpace

PEER = "P"


class _Wire(Fake):
    """A fake of NIXL's own agent."""

    def make_prepped_xfer(self, *_args: Any, **_kwargs: Any) -> int:
        return 0

    def transfer(self, _handle: int) -> None: ...

    def send_notif(self, *_args: Any, **_kwargs: Any) -> None: ...


def read(worker: Any, local: Any, remote: Any, ratio: int) -> tuple[Any, Any]:
    """D's and P's kernel block lists, as `_read_blocks` of this release trims them."""
    described: list[Any] = []

    def descriptors(*args: Any, **kwargs: Any) -> Any:
        lists = kwargs["block_ids"] if "block_ids" in kwargs else args[1]
        described.append(lists)
        return np.array([block for group in lists for block in group])

    worker.engine_id, worker.world_size, worker.nixl_wrapper = "D", 1, _Wire()
    hybrid, worker._is_hma_required = worker._is_hma_required, True
    worker._remote_agents = {PEER: {0: PEER}}
    worker._recving_transfers = defaultdict(list)
    worker.dst_num_blocks = defaultdict(int)
    worker.kv_topo = FakeSpace(block_size_ratio_from_engine_id=lambda _engine: 1)
    worker.transfer_topo = FakeSpace(
        block_size_ratio=lambda _size: 1,
        get_engine_info=lambda _engine: FakeSpace(
            remote_block_size=1, remote_physical_blocks_per_logical=ratio
        ),
    )
    worker._get_block_descs_ids = worker._compute_desc_ids = descriptors
    lists = {"local_block_ids": local, "remote_block_ids": remote, "remote_rank": 0}
    if "read_spec" in inspect.signature(worker._read_blocks).parameters:
        lists = {"read_spec": FakeSpace(**lists)}
    worker._read_blocks(
        **accepted(
            worker._read_blocks,
            dst_engine_id=PEER,
            request_id="r",
            remote_request_id="r",
            local_xfer_side_handle=0,
            remote_xfer_side_handle=0,
            **lists,
        )
    )
    worker._is_hma_required = hybrid
    theirs, ours = described
    return ours, theirs
