"""What vLLM imports of LMCache, for reproducers without LMCache."""

import importlib
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_scheduler,
    create_vllm_config,
)

CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector"
ADAPTER = "lmcache.integration.vllm.vllm_multi_process_adapter"


class Client:
    """In place of LMCacheMPSchedulerAdapter: LMCache has the first `found` tokens of each prompt,
    in chunks of one block."""

    found = 0

    def __init__(self, **_anything: Any) -> None:
        pass

    def num_blocks_per_chunk(self) -> int:
        return 1

    def check_lookup_result(self, _request_id: str) -> int:
        return self.found

    def ignore(self, *_anything: Any, **_more: Any) -> None:
        pass

    maybe_submit_lookup_request = cleanup_lookup_result = end_session = ignore
    free_lookup_locks = report_block_allocations = ignore


STAND_INS: dict[str, dict[str, Any]] = {
    "lmcache": {},
    "lmcache.utils": {"init_logger": logging.getLogger},
    "lmcache.integration": {},
    "lmcache.integration.vllm": {},
    "lmcache.integration.vllm.utils": {"mla_enabled": lambda _model: False},
    ADAPTER: {
        "LMCacheMPSchedulerAdapter": Client,
        "LMCacheMPWorkerAdapter": object,
        "LoadStoreOp": SimpleNamespace,
        "ParallelStrategy": lambda *_anything: None,
    },
    "lmcache.v1": {},
    "lmcache.v1.multiprocess": {},
    "lmcache.v1.multiprocess.custom_types": {"RequestAllocationRecord": SimpleNamespace},
}
"""The names that vLLM imports, by module."""


def stand_in_for_lmcache(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let vLLM import these in place of LMCache, for one test. Returns the connector's module."""
    there = getattr(sys.modules.get(ADAPTER), "LMCacheMPSchedulerAdapter", None)
    if there is not Client:
        for name, members in STAND_INS.items():
            stand_in = ModuleType(name)
            stand_in.__dict__.update(members)
            monkeypatch.setitem(sys.modules, name, stand_in)
        monkeypatch.delitem(sys.modules, CONNECTOR, raising=False)
    return importlib.import_module(CONNECTOR)


def make_scheduler(monkeypatch: pytest.MonkeyPatch, chunk: int, num_blocks: int) -> Scheduler:
    """Make the scheduler of an engine with LMCache that computes `chunk` tokens in a step, and
    computes a prompt whose load fails. `num_blocks` counts the null block."""
    stand_in_for_lmcache(monkeypatch)
    config = create_vllm_config(
        max_num_batched_tokens=chunk,
        kv_connector="LMCacheMPConnector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
    )
    return create_scheduler(config, num_blocks, hash_block_size=config.cache_config.block_size)


def take_step(scheduler: Scheduler, **reports: Any) -> SchedulerOutput:
    """Take a step of prompts that are not computed to their ends."""
    step = scheduler.schedule()
    ran = create_model_runner_output(list(scheduler.requests.values()), **reports)
    ran.sampled_token_ids = [[] for _ in ran.req_ids]
    scheduler.update_from_output(step, ran)
    return step


def transfers(step: Any, direction: str) -> list[Any]:
    """Return what LMCache's worker is to load ("RETRIEVE") or to store ("STORE") in a step."""
    return [each.op for each in step.kv_connector_metadata.requests if each.direction == direction]
