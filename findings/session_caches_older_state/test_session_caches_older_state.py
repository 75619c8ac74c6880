"""vLLM 0.32.0, a Mamba hybrid in align mode with speculative decoding and streaming input.

The last step of an answer verifies drafts past a block boundary, and they are rejected. Its state
is then in the block after that of the computed tokens. The next part of the session is computed in
a chunk that runs past the end of this block. No step ends there, and the block is cached as the
state of that boundary. A request with the same tokens up to there continues from an older state.
"""

from dataclasses import replace
from typing import Any

import pytest
from vllm.config import SpeculativeConfig
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request

from findings.helpers.utils import (
    create_model_runner_output,
    create_request,
    create_scheduler,
    create_vllm_config,
    make_kv_cache_config,
)

FAILS_WITH = "and no step of the session ended there"

BLOCK_SIZE = 16
NUM_BLOCKS = 32
DRAFTS = [1]
FIRST, NEXT = BLOCK_SIZE - 1, 3 * BLOCK_SIZE  # tokens of the parts of the session
ANSWER = 2  # tokens


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of an earlier step that ends inside a chunk of a prompt is not cached."""
    released = MambaManager.cache_blocks

    def cache(self: Any, request: Request, num_tokens: int, *args: Any, **named: Any) -> None:
        blocks, older = self.req_to_blocks[request.request_id], {}
        if request.num_computed_tokens < request.num_prompt_tokens:
            for index, block in enumerate(blocks):
                end = (index + 1) * self.block_size
                if 0 < request.num_computed_tokens < end < num_tokens and not block.block_hash:
                    older[index], blocks[index] = block, self._null_block
        released(self, request, num_tokens, *args, **named)
        for index, block in older.items():
            blocks[index] = block

    monkeypatch.setattr(MambaManager, "cache_blocks", cache)


def step(scheduler: Scheduler, sampled: int) -> int:
    """Take one step. Returns the number of tokens that the session has computed then."""
    output = scheduler.schedule()
    session = scheduler.requests["id-1"]
    ran = create_model_runner_output([session], token_id=sampled)
    scheduler.update_from_output(output, ran)
    return int(session.num_computed_tokens)


def test_a_state_is_cached_where_a_step_ended() -> None:
    config = create_vllm_config(max_num_batched_tokens=128, max_model_len=256)
    config.kv_transfer_config = None
    config.speculative_config = SpeculativeConfig(
        method="ngram", num_speculative_tokens=len(DRAFTS)
    )
    config.cache_config.mamba_cache_mode, config.cache_config.mamba_block_size = "align", BLOCK_SIZE
    cache = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=NUM_BLOCKS
    )
    mamba = cache.kv_cache_groups[1]
    mamba.kv_cache_spec = replace(mamba.kv_cache_spec, num_speculative_blocks=len(DRAFTS))
    scheduler = create_scheduler(config, kv_cache_config=cache)
    session = create_request(1, FIRST, FIRST, max_tokens=ANSWER)
    then = create_request(1, NEXT, NEXT, max_tokens=ANSWER)
    session.resumable = then.resumable = True
    scheduler.add_request(session)
    ends = [step(scheduler, 1)]
    scheduler.update_draft_token_ids(DraftTokenIds(["id-1"], [DRAFTS]))
    ends.append(step(scheduler, 2))  # the draft is rejected, and the answer ends
    scheduler.add_request(then)
    ends.append(step(scheduler, 9))
    assert ends == [15, 16, 48]

    other = create_request(2, 41, 40)
    hit = scheduler.kv_cache_manager.get_computed_blocks(other)[1]
    assert hit in ends, (
        f"a prompt with the same 40 tokens continues from the state of {hit} tokens, {FAILS_WITH}: "
        f"they ended at {ends}"
    )
