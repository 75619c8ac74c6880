"""The block lists of NIXL's worker, and its reports.

Two records are judged without the engines that wrote them, whose pools may be large: a worker that
is not started trims their lists.
"""

import inspect
from typing import Any

from kvproof.live import adapt, build
from kvproof.live.adapt import named
from kvproof.live.fake import unstarted
from kvproof.model import config
from kvproof.model.errors import AdapterDrift
from kvproof.model.state import Lists

Pairs = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def worker(cfg: config.EngineConfig) -> Any:
    """A worker of this engine that computes block lists and nothing else."""
    made = unstarted(named("NixlBaseConnectorWorker"))
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


def trimmed(cfg: config.EngineConfig, local: Lists, remote: Lists) -> Pairs:
    """The block lists of two records, those of D (`cfg`) and P's, after the trimming of D's worker.
    A record has no kernel blocks of another size. If the trimming would raise an exception, the
    lists are not changed. Raises AdapterDrift in a release that has no method for it alone (up to
    0.21)."""
    name = "_apply_prefix_caching"
    if not hasattr(named("NixlBaseConnectorWorker"), name):
        why = "A worker of this vLLM trims block lists only while it reads"
        raise AdapterDrift(why, f"NixlConnectorWorker.{name}")
    trim = getattr(worker(cfg), name)
    ratios = (1,) if len(inspect.signature(trim).parameters) == 3 else (1, 1)
    try:
        ours, theirs = trim([[*ids] for ids in local], [[*ids] for ids in remote], *ratios)
    except (AssertionError, ValueError, IndexError):
        return tuple(zip(local, remote, strict=False))
    return tuple(zip(as_lists(ours), as_lists(theirs), strict=True))
