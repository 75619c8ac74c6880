"""vLLM 0.32.0, OffloadingConnector with the tier `p2p`: the connector's cache cannot be reset while
stores wait for another engine, and after the attempt the engine may die.

P's stores wait until D fetches them, for 60 seconds. `P2PSecondaryTierManager.drain_jobs` waits for
transfers alone, and leaves these stores as they are. So `TieringOffloadingManager.reset_cache`
finds jobs, and raises an AssertionError. By then `OffloadingConnectorScheduler.reset_cache` has
forgotten the requests that have ended, but not their jobs: when the worker reports one of them, the
step raises a KeyError.

Here the scheduler, the connector and its tiers are the real ones, without NIXL: nothing is
transferred. The worker's reports are written by hand.
"""

import contextlib
import mmap
import socket
from collections.abc import Iterator

import pytest
import torch
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_offload.tiering.p2p.data import nixl
from vllm.v1.request import Request

from findings.helpers.offloading import make_kv_cache_of, take_step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "while a store waits for another engine"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
CPU_BYTES = 64 * mmap.PAGESIZE  # 64 chunks


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """Make the scheduler of P, with a CPU tier and behind it the tier of other engines. A request
    of a router, for which D will fetch the prompt, has ended."""
    monkeypatch.setattr(nixl, "_NixlAgent", None)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    config = create_vllm_config(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={
            "cpu_bytes_to_use": CPU_BYTES,
            "spec_name": "TieringOffloadingSpec",
            "secondary_tiers": [{"type": "p2p", "host": "localhost", "port": port}],
        },
    )
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    cache = make_kv_cache_of(NUM_BLOCKS, spec)
    made = create_scheduler(config, kv_cache_config=cache, hash_block_size=BLOCK_SIZE)
    request = create_request(1, 2 * BLOCK_SIZE, max_tokens=1)
    request.kv_transfer_params = {"remote_decoder": {"kv_request_id": "r0"}}
    stores = begin_stores(made, request)
    assert stores, "the prompt is stored"
    take_step(made, completed=stores)
    take_step(made)
    assert not made.requests
    yield made
    made.shutdown()


def begin_stores(scheduler: Scheduler, request: Request) -> list[int]:
    """Serve a request to its end. Returns its stores, which are under way."""
    scheduler.add_request(request)
    return [*take_step(scheduler).store_jobs, *take_step(scheduler).store_jobs]


def test_the_cache_is_reset(scheduler: Scheduler) -> None:
    try:
        assert scheduler.reset_prefix_cache(reset_connector=True)
    except AssertionError as error:
        pytest.fail(f"the reset raises {error!r} while a store waits for another engine")


def test_the_engine_survives_the_reset(scheduler: Scheduler) -> None:
    stores = begin_stores(scheduler, create_request(2, 2 * BLOCK_SIZE, max_tokens=1))
    with contextlib.suppress(AssertionError):  # the engine core answers with it, and goes on
        scheduler.reset_prefix_cache(reset_connector=True)
    try:
        take_step(scheduler, completed=stores)
    except KeyError as error:
        pytest.fail(f"{error!r} after a reset while a store waits for another engine")
