"""Set-up for connectors that keep blocks on the CPU."""

from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheSpec, KVCacheTensor

from findings.helpers.utils import create_model_runner_output


def make_kv_cache_of(num_blocks: int, *specs: KVCacheSpec) -> KVCacheConfig:
    """Make a KV cache with a group of one layer for each spec. As in vLLM, the groups share one
    tensor; its blocks are pages of the first spec. `num_blocks` counts the null block."""
    page = specs[0].page_size_bytes
    layers = [f"layer{number}" for number in range(len(specs))]
    size = page * num_blocks
    apart = size if len(specs) == 1 else 0
    tensor = KVCacheTensor(size, layers=layers, layer_stride=apart, block_stride=page)
    groups = [KVCacheGroupSpec([layer], spec) for layer, spec in zip(layers, specs, strict=True)]
    return KVCacheConfig(num_blocks, [tensor], groups)


def take_step(scheduler: Scheduler, completed: Iterable[int] = ()) -> Any:
    """Take a step of an `OffloadingConnector`, whose worker reports that these jobs are completed;
    each scheduled request samples a token. Returns the connector's metadata."""
    step = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in step.num_scheduled_tokens]
    worker = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(completed, 1))
    ran = create_model_runner_output(reqs, kv_connector_worker_meta=worker)
    scheduler.update_from_output(step, ran)
    return step.kv_connector_metadata
