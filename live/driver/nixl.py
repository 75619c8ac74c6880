"""The block lists of NIXL's worker, and its reports.

Two records are judged without the engines that wrote them, whose pools may be large. For these, the
lists are expanded and trimmed by the methods of a worker that is not started.
"""

import inspect
from typing import Any

from kvproof.live import adapt, build
from kvproof.live.adapt import first
from kvproof.live.contract.table_transfers import WORKERS
from kvproof.live.fake import unstarted
from kvproof.model import config
from kvproof.model.errors import AdapterDrift
from kvproof.model.state import Lists

Pairs = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def worker(cfg: config.EngineConfig) -> Any:
    """A worker of this engine that computes block lists and nothing else."""
    made = unstarted(first(WORKERS))
    kv_cache = build.kv_cache_config(cfg)
    groups = getattr(kv_cache, "transfer_groups", kv_cache.kv_cache_groups)
    made.kv_cache_config = kv_cache
    made._has_mamba = cfg.has_state
    made._physical_blocks_per_logical_kv_block = cfg.physical_per_logical
    made._group_spec_types = tuple(type(g.kv_cache_spec) for g in groups)
    return made


def as_lists(groups: Any) -> Lists:
    """Block lists as plain tuples."""
    return tuple(tuple(int(b) for b in group) for group in groups)


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
    """D's and P's kernel block lists after the real trimming. Raises AdapterDrift in a release that
    has no method for it alone (up to 0.21)."""
    if not hasattr(type(decode), "_apply_prefix_caching"):
        why = "A worker of this vLLM trims block lists only while it reads"
        raise AdapterDrift(why, "NixlConnectorWorker._apply_prefix_caching")
    own_ratio = decode._physical_blocks_per_logical_kv_block
    ratio = prefill.physical_per_logical
    ours = _expanded(decode, local, own_ratio, own_ratio)
    theirs = _expanded(decode, remote, ratio, own_ratio)
    if len(inspect.signature(decode._apply_prefix_caching).parameters) == 3:
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
