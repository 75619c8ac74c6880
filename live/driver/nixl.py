"""The block-list part of the real NIXL connector's worker side.

The connector's worker is not started, because it would open a side channel and register memory. Its
own methods expand and trim the lists. Where a release trims them inside its read method, that
method runs unchanged, with a NIXL agent that transfers nothing (`_Wire`): up to 0.21 the trimming
is part of `_read_blocks`. The lists are then those for which it requests descriptors, P's first and
D's second; vLLM itself asserts that they have equal lengths.
"""

import inspect
import queue
from collections import defaultdict
from typing import Any

import numpy as np

from kvproof.live import adapt, build
from kvproof.live.adapt import accepted, first
from kvproof.live.contract.table_transfers import WORKERS
from kvproof.live.fake import Fake, FakeSpace, unstarted
from kvproof.model import config
from kvproof.model.state import Lists

Pairs = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def worker(cfg: config.EngineConfig, kind: type | None = None) -> Any:
    """A worker of this engine that computes block lists and nothing else, of NIXL's own class or of
    a `kind` of it."""
    made = unstarted(kind or first(WORKERS))
    kv_cache = build.kv_cache_config(cfg)
    groups = getattr(kv_cache, "transfer_groups", kv_cache.kv_cache_groups)
    made.kv_cache_config = kv_cache
    made._has_mamba = cfg.has_state
    made._physical_blocks_per_logical_kv_block = cfg.physical_per_logical
    made._group_spec_types = tuple(type(g.kv_cache_spec) for g in groups)
    made._is_mamba_group = [not g.attention for g in cfg.groups]
    made._is_hma_required = any(g.kind != "full" for g in cfg.groups)
    return made


def as_lists(groups: Any) -> Lists:
    """Block lists as plain tuples."""
    return tuple(tuple(int(b) for b in group) for group in groups)


def failed(worker: Any, name: str, meta: Any) -> dict[str, set[Any]]:
    """The report of a worker about a request whose read failed. Before 0.30 it reports that the
    read has ended, and the blocks that were not filled; with several kinds of groups it names no
    blocks."""
    if adapt.reports_failed_reads():
        return {"failed_recving": {name}, "finished_recving": {name}}
    worker._recving_metadata = {name: meta}
    worker._failed_recv_reqs, worker._invalid_block_ids = queue.Queue(), queue.Queue()
    worker.xfer_stats = FakeSpace(record_failed_transfer=lambda: None)
    worker._handle_failed_transfer(name, None)
    invalid = worker.get_block_ids_with_load_errors()
    return {"invalid_block_ids": invalid, "finished_recving": {name}}


def ended(worker: Any) -> dict[str, set[Any]]:
    """The report of a worker about the transfers that have ended since the last call."""
    if adapt.reports_failed_reads():
        results = worker.get_transfer_results()
        kinds = ("finished_recving", "failed_recving", "finished_sending")
        return {kind: getattr(results, kind) for kind in kinds}
    sent, received = worker.get_finished()
    invalid = worker.get_block_ids_with_load_errors()
    return {
        "finished_recving": received,
        "invalid_block_ids": invalid,
        "finished_sending": sent,
    }


def paired(prefill: config.EngineConfig, decode: Any, local: Lists, remote: Lists) -> Pairs:
    """D's and P's kernel block lists after the real trimming."""
    own_ratio = decode._physical_blocks_per_logical_kv_block
    ratio = prefill.physical_per_logical
    ours = _expanded(decode, local, own_ratio, own_ratio)
    theirs = _expanded(decode, remote, ratio, own_ratio)
    if not hasattr(type(decode), "_apply_prefix_caching"):
        ours, theirs = _read(decode, ours, theirs, ratio)
    elif len(inspect.signature(decode._apply_prefix_caching).parameters) == 3:
        ours, theirs = decode._apply_prefix_caching(ours, theirs, ratio)
    else:
        ours, theirs = decode._apply_prefix_caching(ours, theirs, own_ratio, ratio)
    return tuple(zip(as_lists(ours), as_lists(theirs), strict=True))


def trimmed(
    prefill: config.EngineConfig, cfg: config.EngineConfig, local: Lists, remote: Lists
) -> Pairs:
    """The block lists of two records, D's and P's, after the trimming of D's worker. If the
    trimming would raise an exception, the lists are not changed."""
    try:
        return paired(prefill, worker(cfg), local, remote)
    except (AssertionError, ValueError, IndexError):
        return tuple(zip(local, remote, strict=False))


def _expanded(decode: Any, blocks: Lists, ratio: int, own_ratio: int) -> Any:
    """The kernel blocks of these blocks, computed by this release's own method for this ratio."""
    lists = [list(group) for group in blocks]
    expand = decode._logical_to_kernel_block_ids
    if len(inspect.signature(expand).parameters) == 2:
        return expand(lists, ratio)
    if ratio == own_ratio:
        return expand(lists)
    return decode._logical_to_remote_kernel_block_ids(lists, ratio)


PEER = "P"


class _Wire(Fake):
    """A fake of NIXL's own agent."""

    def make_prepped_xfer(self, *_args: Any, **_kwargs: Any) -> int:
        return 0

    def transfer(self, _handle: int) -> None: ...

    def send_notif(self, *_args: Any, **_kwargs: Any) -> None: ...


def _read(worker: Any, local: Any, remote: Any, ratio: int) -> tuple[Any, Any]:
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
