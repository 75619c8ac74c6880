"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer, full attention.

D has answered a prompt and keeps its blocks for the next turn. The client submits the same prompt
again (it wants another answer, and P, or another P, has not cached the prompt). P asks D for the
tokens of its prompt but receives D's whole list. vLLM trims the list at its front to the length of
P's list, so P's blocks receive the KV of the end of D's answer. P then caches them under its
prompt.
"""

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker
from vllm.v1.core.sched.scheduler import Scheduler

from findings.helpers.turns import first_turn, step
from findings.helpers.utils import create_request, create_scheduler, create_vllm_config

FAILS_WITH = "are filled from D's blocks at positions"

PROMPT, ANSWER = 100, 40  # tokens


def make_scheduler() -> Scheduler:
    config = create_vllm_config(
        max_num_batched_tokens=4096,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"bidirectional_kv_xfer": True},
    )
    return create_scheduler(config, num_blocks=1000)


def test_p_loads_the_blocks_of_its_own_prompt() -> None:
    prefill, decode = make_scheduler(), make_scheduler()
    held = first_turn(prefill, decode, PROMPT, ANSWER)
    assert held["do_remote_decode"]
    assert held["remote_num_tokens"] == PROMPT + ANSWER - 1
    of_d = list(held["remote_block_ids"][0])
    prefill.reset_prefix_cache()
    again = create_request(2, PROMPT, PROMPT, max_tokens=1)
    again.kv_transfer_params = held
    prefill.add_request(again)
    output, _ = step(prefill)
    read = output.kv_connector_metadata.reqs_to_recv["id-2"]
    of_p = list(prefill.kv_cache_manager.get_block_ids("id-2")[0])

    worker = object.__new__(NixlBaseConnectorWorker)
    worker._has_mamba = False
    ours, theirs = worker._apply_prefix_caching(read.local_block_ids, read.remote.block_ids, 1, 1)
    to = [of_p.index(block) for block in ours[0]]
    origin = [of_d.index(block) for block in theirs[0]]
    assert to == origin, (
        f"Of {held['remote_num_tokens']} tokens that D holds, P loads the {PROMPT} of "
        f"its prompt: its blocks at positions {to} are filled from D's blocks at positions "
        f"{origin}"
    )
