"""vLLM 0.32.0, streaming input (resumable requests), speculative decoding, one engine. vllm#44526.

A session's answer ends at `max_tokens` in the middle of accepted drafts. The drafts after the end
are cut off but stay counted in `num_computed_tokens`, from which the session continues. As many
tokens of the next part count as computed and are never computed. If the part is not longer than
that, the next step fails an assertion.
On 0.32.0 [released] fails and [patched] passes. 0.33.0 does not count them.
"""

from vllm.config import SpeculativeConfig
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "of the next part count as computed and never were"

FIRST, NEXT = 30, 5  # tokens of the parts of the session
ANSWER = 2  # max_tokens of each part
DRAFTS = [1, 2, 3]


def make_part(tokens: int) -> Request:
    part = create_request(1, tokens, max_tokens=ANSWER)
    part.resumable = True
    return part


def step(scheduler: Scheduler, sampled: list[int]) -> SchedulerOutput:
    output = scheduler.schedule()
    ran = create_model_runner_output(list(scheduler.requests.values()))
    ran.sampled_token_ids = [sampled]
    scheduler.update_from_output(output, ran)
    return output


def test_all_of_the_next_part_is_computed() -> None:
    config = create_vllm_config(max_num_batched_tokens=2 * FIRST, max_model_len=128)
    config.kv_transfer_config = None
    config.speculative_config = SpeculativeConfig(
        method="ngram", num_speculative_tokens=len(DRAFTS)
    )
    scheduler = create_scheduler(config, num_blocks=16)
    scheduler.add_request(make_part(FIRST))
    step(scheduler, [7])
    scheduler.update_draft_token_ids(DraftTokenIds(["id-1"], [DRAFTS]))
    # All drafts are accepted; one of the four tokens ends the answer.
    verified = step(scheduler, [*DRAFTS, 8])
    assert verified.scheduled_spec_decode_tokens == {"id-1": DRAFTS}

    session = scheduler.requests["id-1"]
    scheduler.add_request(make_part(NEXT))
    before = session.num_tokens - NEXT
    assert session.num_computed_tokens <= before, (
        f"{session.num_computed_tokens} of {session.num_tokens} tokens are computed: "
        f"{session.num_computed_tokens - before} {FAILS_WITH}"
    )
    assert step(scheduler, [9]).num_scheduled_tokens["id-1"] >= NEXT
