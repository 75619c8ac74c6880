"""vLLM 0.32.0, NixlConnector, and speculative decoding on D.

Before a load begins, D asks for its blocks and, in addition, for the blocks of a whole step with
drafts in each attention group. The blocks of the load have room for such a step themselves. A
prompt that ends in the last block of the pool, and could be served there, needs one block more than
exist. Alone on an idle D it waits for ever, and so do all requests behind it.

The pool has room for `max_model_len` tokens; the check at start requires no more.

Run: pytest --noconftest test_load_keeps_room_for_drafts.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "waits for ever"

BLOCK_SIZE = 16
POOL = 4
"""Blocks that requests can have; the null block is one more."""
MAX_MODEL_LEN = POOL * BLOCK_SIZE
LONG, SHORT = MAX_MODEL_LEN - 4, 3
"""Prompts, in tokens: with 3 drafts after it the long one ends in the last block, too."""
NUM_DRAFTS = 3
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No blocks are kept free for drafts if no other request runs or loads."""

    def kept(self: Any) -> int:
        return self.kept_for_drafts if self.running or self._inflight_prefills else 0

    def keep(self: Any, blocks: int) -> None:
        self.kept_for_drafts = blocks

    monkeypatch.setattr(Scheduler, "_spec_decode_step_blocks", property(kept, keep), raising=False)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """D's scheduler."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    target = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=MAX_MODEL_LEN
    )
    vllm_config = VllmConfig(
        model_config=target,
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=MAX_MODEL_LEN,
            max_model_len=MAX_MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector", kv_role="kv_consumer", engine_id="D"
        ),
        speculative_config=SpeculativeConfig(
            method="ngram",
            num_speculative_tokens=NUM_DRAFTS,
            target_model_config=target,
            target_parallel_config=ParallelConfig(),
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = POOL + 1
    full = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=4, dtype=torch.float32
    )
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            POOL + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer0"], full)]
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, first: int, num_tokens: int) -> Request:
    """A request whose whole prompt P offers."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": (list(range(1, -(-num_tokens // BLOCK_SIZE) + 1)),),
        "remote_engine_id": "P",
        "remote_request_id": name,
        "remote_host": "localhost",
        "remote_port": 1234,
        "remote_num_tokens": num_tokens,
        "tp_size": 1,
    }
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + num_tokens)),
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def step(scheduler: Scheduler, loading: set[str]) -> SchedulerOutput:
    """One step: schedule, sample one token for each scheduled request, and report the loads that
    were in `loading` before the step as finished. Loads that begin are added to `loading`."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    done = KVConnectorOutput(finished_recving=set(loading)) if loading else None
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[7] for _ in names],
            kv_connector_output=done,
        ),
    )
    loading.clear()
    loading |= set(output.kv_connector_metadata.reqs_to_recv)
    return output


def test_a_prompt_that_fits_is_loaded(tmp_path: Path) -> None:
    decode = make_scheduler(tmp_path)
    for name, first, tokens in (("long", 0, LONG), ("short", 1000, SHORT)):
        decode.add_request(make_request(name, first, tokens))
    loading: set[str] = set()
    for _ in range(STEPS):
        step(decode, loading)
    free = decode.kv_cache_manager.block_pool.get_num_free_blocks()
    waits = sorted(decode.requests)
    assert not waits, (
        f"D is idle with {free} of {POOL} blocks free; a prompt of {LONG} tokens, which need "
        f"{-(-LONG // BLOCK_SIZE)} blocks, waits for ever: {STEPS} steps have loaded nothing "
        f"for {waits}"
    )
