"""vLLM 0.32.0, async scheduling, streaming input (resumable requests), one engine.

A session is preempted while the step that samples the last token of its answer is in flight. The
token arrives late and ends the answer. `_handle_stopped_request` puts the session into the waiting
queue, and `update_from_output` then removes all requests that ended while they were preempted from
this queue. The session is in no queue. When its next part arrives, `_update_request_as_session`
keeps the computed tokens; a preempted request has none, so the earlier text is lost too.
"""

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "are never computed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 3  # 0 is the null block
MAX_MODEL_LEN = 3 * BLOCK_SIZE  # the check at start requires a pool of this many tokens
OTHER = 2 * BLOCK_SIZE - 1  # prompt of the other request, which needs its third block soon
FIRST, NEXT = 8, 4  # two parts of the session
ANSWER = 2  # tokens
TOKEN = 7
STEPS = 20


def take_output(scheduler: Scheduler, output: SchedulerOutput) -> None:
    """The output of a step arrives: one token for each request, because no prompt is split."""
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    ran = create_model_runner_output(reqs, token_id=TOKEN)
    scheduler.update_from_output(output, ran)


def test_an_answer_that_ends_after_a_preemption() -> None:
    config = create_vllm_config(max_num_batched_tokens=256, max_model_len=MAX_MODEL_LEN)
    config.kv_transfer_config = None
    config.scheduler_config.async_scheduling = True  # the CPU's platform sets it to False
    scheduler = create_scheduler(config, NUM_BLOCKS)
    session, then = (
        create_request(1, FIRST, max_tokens=ANSWER),
        create_request(1, NEXT, max_tokens=1),
    )
    session.resumable = then.resumable = True
    scheduler.add_request(create_request(2, OTHER, max_tokens=4))
    scheduler.add_request(session)
    prompts, last = scheduler.schedule(), scheduler.schedule()
    take_output(scheduler, prompts)
    behind = scheduler.schedule()
    assert session.num_preemptions == 1
    take_output(scheduler, last)
    assert list(session.output_token_ids) == [TOKEN] * ANSWER

    text = [*session.prompt_token_ids, *[TOKEN] * (ANSWER - 1), *then.prompt_token_ids]
    scheduler.add_request(then)
    take_output(scheduler, behind)
    computed = 0
    for _ in range(STEPS):
        step = scheduler.schedule()
        computed += step.num_scheduled_tokens.get("id-1", 0)
        if step.num_scheduled_tokens:
            take_output(scheduler, step)
    assert not scheduler.running
    assert computed == len(text), (
        f"{len(text) - computed} of {len(text)} tokens of a session that goes on are never "
        f"computed; {sum(map(len, (scheduler.waiting, scheduler.kv_holding_waiting)))} "
        "waiting queues have it"
    )
    assert session.prompt_token_ids == text
    assert list(session.all_token_ids)[: len(text)] == text
