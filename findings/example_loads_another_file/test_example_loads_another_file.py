"""vLLM 0.32.0, ExampleConnector: it looks up one file and loads another, which may not exist: the
engine dies of FileNotFoundError.

`get_num_new_matched_tokens` looks for the file of the prompt's whole blocks without its last token.
The load takes the file of the whole blocks of all tokens of the step but one. These differ for a
prompt of whole blocks and one token, and for a request that was preempted after its answer had
passed the end of a block.

Here the scheduler and the connector's scheduler side are the real ones; what the worker saves is
written by hand: the folder of a file.
"""

from pathlib import Path

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
)

FAILS_WITH = "the worker loads a file that nobody has saved"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 20  # 0 is the null block
NUM_PROMPT = BLOCK_SIZE + 4


def make_scheduler(folder: Path) -> Scheduler:
    """Make the scheduler of an engine with files in this folder. It runs a request, whose first
    block was saved."""
    config = create_vllm_config(
        max_num_batched_tokens=256,
        kv_connector="ExampleConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"shared_storage_path": str(folder)},
    )
    scheduler = create_scheduler(config, NUM_BLOCKS)
    scheduler.add_request(create_request(1, NUM_PROMPT, NUM_PROMPT, max_tokens=40))
    assert step(scheduler) == []
    return scheduler


def step(scheduler: Scheduler) -> list[int]:
    """Take a step, in which the worker saves and loads what the metadata name. Returns the numbers
    of the tokens that it loads."""
    output = scheduler.schedule()
    loads = []
    for each in output.kv_connector_metadata.requests:
        tokens, folder = each.token_ids, scheduler.connector._generate_foldername_debug
        if not each.is_store:
            loads.append(len(tokens))
            assert Path(folder(tokens, [])).exists(), (
                "the worker loads a file that nobody has saved: that of the first "
                f"{len(tokens)} tokens"
            )
        folder(tokens, [], create_folder=each.is_store)
    reqs = [scheduler.requests[name] for name in output.num_scheduled_tokens]
    scheduler.update_from_output(output, create_model_runner_output(reqs, token_id=1))
    return loads


def test_a_prompt_of_whole_blocks_and_a_token(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    scheduler.finish_requests("id-1", RequestStatus.FINISHED_ABORTED)
    assert scheduler.reset_prefix_cache()
    scheduler.add_request(create_request(2, 2 * BLOCK_SIZE + 1, 2 * BLOCK_SIZE + 1))
    assert step(scheduler) == [BLOCK_SIZE]


def test_a_request_that_is_resumed(tmp_path: Path) -> None:
    scheduler = make_scheduler(tmp_path)
    while scheduler.requests["id-1"].num_tokens <= 2 * BLOCK_SIZE:
        step(scheduler)
    assert scheduler.reset_prefix_cache(reset_running_requests=True)
    assert step(scheduler) == [BLOCK_SIZE]
