"""vLLM 0.32.0, MooncakeStoreConnector: a reset of the prefix cache that preempts running requests
loses them: each hangs, or the engine dies. `pause_generation(mode="keep")` makes such a reset.

`reset_prefix_cache(reset_running_requests=True)` preempts between two steps. The next step admits
the request again, and names it in `preempted_req_ids`. For each such request
`MooncakeStoreScheduler.build_connector_meta` drops what `update_state_after_alloc` noted in the
same step: a load is never given to the worker, and a request without a load has no entry.

Here the scheduler and the connector's scheduler side are the real ones; the look-up and the
worker's report are written by hand.
"""

from collections.abc import Iterator

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import (
    MooncakeLookupResult,
    MooncakeStoreWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker import LookupKeyClient
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "the request is lost after the reset"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = 2 * BLOCK_SIZE + 4


def step(scheduler: Scheduler) -> SchedulerOutput:
    """Take a step, after which the worker has stored what the metadata name."""
    try:
        output = scheduler.schedule()
    except (AssertionError, TypeError) as error:
        pytest.fail(f"the request is lost after the reset: the engine dies of {error!r}")
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    saves = [each.store_job_id for each in output.kv_connector_metadata.requests if each.can_save]
    worker = MooncakeStoreWorkerMetadata(completed_saves=dict.fromkeys(saves, 1))
    ran = create_model_runner_output(reqs, kv_connector_worker_meta=worker)
    scheduler.update_from_output(output, ran)
    return output


def store_has(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """The store has so many tokens of each prompt."""
    found = MooncakeLookupResult(hit_length=tokens)
    monkeypatch.setattr(LookupKeyClient, "_lookup", lambda *_: found)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    """It runs a request, whose first two blocks were stored."""
    config = create_vllm_config(kv_connector="MooncakeStoreConnector", kv_role="kv_both")
    made = create_scheduler(config, NUM_BLOCKS, hash_block_size=BLOCK_SIZE)
    store_has(monkeypatch, 0)
    made.add_request(create_request(1, NUM_PROMPT))
    assert step(made).kv_connector_metadata.requests[0].can_save
    step(made)
    yield made
    made.connector.connector_scheduler.client.close()


def test_a_request_is_loaded_after_a_reset(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_has(monkeypatch, 2 * BLOCK_SIZE)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    output = step(scheduler)
    assert scheduler.requests["id-1"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    loads = [each.req_id for each in output.kv_connector_metadata.requests if each.load_spec]
    assert loads == ["id-1"], (
        "the request is lost after the reset: it waits for the load of 32 tokens, and the worker "
        f"gets these loads: {loads}"
    )


def test_a_request_runs_on_after_a_reset_of_the_store(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LookupKeyClient, "_reset", lambda _: True)
    assert scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    assert step(scheduler).num_scheduled_tokens == {"id-1": NUM_PROMPT + 2}
