"""vLLM 0.32.0, NixlPushConnector, Mamba layers in align mode, and streaming input.

D has the first part of a session in its prefix cache, up to the last token, and loads nothing. The
push connector leaves `do_remote_prefill` set then, where the pull connector clears it. When the
session is preempted in a later part, D asks for its whole prompt, which contains the answers and
the later parts. P has been sent the first part only, and its write is taken for all of them.
"""

from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "and P has been sent"

BLOCK_SIZE = 16
SENT = 4 * BLOCK_SIZE
"""Tokens of the first part that P computes. D computes one more."""

ANSWER, NEXT = 3, 40


def make_request(number: int, tokens: int, *, in_session: bool) -> Request:
    """Make a request, or a part of a session. P computes its tokens but the last one."""
    request = create_request(number, tokens, tokens, max_tokens=ANSWER, do_remote_prefill=True)
    del request.kv_transfer_params["remote_block_ids"]
    request.resumable = in_session
    return request


def step(scheduler: Scheduler, **reports: Any) -> SchedulerOutput:
    """Take one step: sample a token for each scheduled request, and report the loads."""
    output = scheduler.schedule()
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    scheduler.update_from_output(output, create_model_runner_output(reqs, **reports))
    return output


def test_d_loads_what_p_was_sent() -> None:
    config = create_vllm_config(max_num_batched_tokens=4096, kv_connector="NixlPushConnector")
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    decode = create_scheduler(config, kv_cache_config=cache)
    decode.add_request(make_request(1, SENT + 1, in_session=False))
    step(decode)
    step(decode, finished_recving={"id-1"})
    while decode.requests:
        step(decode)

    session = make_request(2, SENT + 1, in_session=True)
    decode.add_request(session)
    assert step(decode).num_scheduled_tokens == {"id-2": 1}  # a hit of all that P computes
    while session.status != RequestStatus.WAITING_FOR_STREAMING_REQ:
        step(decode)
    decode.add_request(make_request(2, NEXT, in_session=True))
    step(decode)
    assert decode.reset_prefix_cache(reset_running_requests=True)
    registered = decode.schedule().kv_connector_metadata.push_registrations
    assert not registered or session.num_computed_tokens <= SENT, (
        f"D registers the session for a write and counts {session.num_computed_tokens} tokens as "
        f"loaded, and P has been sent {SENT} of them"
    )
