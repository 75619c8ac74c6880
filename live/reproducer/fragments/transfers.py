"""KV transfers between a prefill and a decode scheduler with NIXL."""

import importlib
import inspect
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.request import RequestStatus

from kvproof.live.reproducer.fragments.steps import Step, report, schedule, update

NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"


def end_transfer(source: Scheduler, sent: str, sink: Scheduler, taken: str) -> None:
    """All blocks are copied, or none is needed: the workers report it."""
    reader = sink.requests.get(taken)
    if reader and reader.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
        report(sink, finished_recving={taken})
    if sent in source.requests:
        report(source, finished_sending={sent})


def nixl_worker(scheduler: Scheduler, kernel_blocks: int) -> Any:
    """A NIXL worker that trims block lists and nothing else."""
    try:
        module = importlib.import_module(NIXL + ".base_worker")
        worker: Any = object.__new__(module.NixlBaseConnectorWorker)
    except ModuleNotFoundError:
        module = importlib.import_module(NIXL + ".worker")
        worker = object.__new__(module.NixlConnectorWorker)
    groups = scheduler.kv_cache_config.kv_cache_groups
    kinds = [type(group.kv_cache_spec) for group in groups]
    worker.kv_cache_config = scheduler.kv_cache_config
    worker._has_mamba = MambaSpec in kinds
    worker._physical_blocks_per_logical_kv_block = kernel_blocks
    worker._group_spec_types = tuple(kinds)
    worker._is_mamba_group = [kind is MambaSpec for kind in kinds]
    return worker


def pairs(reader: Scheduler, step: Step, own_ratio: int, ratio: int) -> dict[str, Any]:
    """The kernel blocks that the worker reads, by request and cache group: its own and
    the sender's, with `own_ratio` and `ratio` of them in a block."""
    worker, read = nixl_worker(reader, own_ratio), {}
    expand, trim = worker._logical_to_kernel_block_ids, worker._apply_prefix_caching
    for name, meta in step.output.kv_connector_metadata.reqs_to_recv.items():
        if not getattr(meta, "awaiting_kvs", meta.local_block_ids):
            continue
        ours, theirs = map(list, (meta.local_block_ids, meta.remote.block_ids))
        if len(inspect.signature(expand).parameters) == 2:
            ours, theirs = expand(ours, own_ratio), expand(theirs, ratio)
        else:
            theirs = worker._logical_to_remote_kernel_block_ids(theirs, ratio)
            ours = expand(ours)
        ratios = [own_ratio, ratio][-(len(inspect.signature(trim).parameters) - 2) :]
        trimmed = zip(*trim(ours, theirs, *ratios), strict=True)
        read[name] = [[list(map(int, ids)) for ids in pair] for pair in trimmed]
    return read


def serve(prefill: Scheduler, decode: Scheduler, steps: int) -> None:
    """Run both schedulers; reads that begin end in the next step."""
    for _ in range(steps):
        for source, sink in ((decode, prefill), (prefill, decode)):
            step = schedule(sink)
            update(sink, step)
            for name in step.output.kv_connector_metadata.reqs_to_recv:
                end_transfer(source, name, sink, name)
