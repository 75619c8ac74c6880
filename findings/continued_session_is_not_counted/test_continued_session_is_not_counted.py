"""vLLM 0.32.0, streaming input (resumable requests), one engine with LoRA and Model Runner V2.

A paused session counts against `max_num_seqs`, because its model runner keeps a slot for it. Once
its next part has come it is not counted any more, and keeps the slot. If it cannot be scheduled in
this step, another request is admitted, and the runner needs a slot more than it has. Here a LoRA
adapter makes it wait; with an asynchronous KV load, a loaded request that stands before it does.
"""

from vllm.config import LoRAConfig
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "the model runner needs"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 16  # 0 is the null block
MODEL_LEN = 6 * BLOCK_SIZE
SLOTS = 2  # max_num_seqs


def make_request(number: int, answer: int, adapter: bool = True) -> Request:
    request = create_request(number, BLOCK_SIZE, max_tokens=answer)
    if adapter:
        request.lora_request = LoRARequest(f"adapter{number}", number, f"/{number}")
    return request


def step(scheduler: Scheduler, slots: set[str]) -> None:
    """Take one step. `slots` are the requests in slots, as Model Runner V2 keeps them."""
    output = scheduler.schedule()
    slots.difference_update(output.finished_req_ids, output.preempted_req_ids or ())
    slots.update(output.num_scheduled_tokens)
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    scheduler.update_from_output(output, create_model_runner_output(reqs))


def test_the_model_runner_has_a_slot_for_each_request() -> None:
    config = create_vllm_config(
        max_num_seqs=SLOTS, max_num_batched_tokens=MODEL_LEN, max_model_len=MODEL_LEN
    )
    config.kv_transfer_config, config.lora_config = None, LoRAConfig(max_loras=1)
    scheduler = create_scheduler(config, NUM_BLOCKS)
    slots: set[str] = set()
    session, then = make_request(1, answer=1), make_request(1, answer=1)
    session.resumable = then.resumable = True
    other, third = make_request(2, answer=20), make_request(3, answer=20, adapter=False)
    for request in (session, other, third):
        scheduler.add_request(request)
        step(scheduler, slots)
    assert slots == {"id-1", "id-2"}  # the paused session is counted

    scheduler.add_request(then)
    step(scheduler, slots)
    assert len(slots) <= SLOTS, f"the model runner needs {len(slots)} slots, and has {SLOTS}"
