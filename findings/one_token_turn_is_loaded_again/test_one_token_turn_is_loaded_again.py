"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer and kv_recompute_threshold 0.

D keeps the blocks of a turn, and P loads the next turn, whose prompt is one token. The last token
of a loaded prompt is computed again, so the turn counts no token as computed, which makes it a new
request: P counts D's token as external again and waits for it. The connector starts one transfer
per request, so no read begins. The turn waits for ever with its block.

Run: pytest --noconftest test_one_token_turn_is_loaded_again.py
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
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import (
    NixlPullConnectorScheduler,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "and no read is in progress"

BLOCK_SIZE = 16
NUM_BLOCKS = 1000
PROMPT = [1000]
ANSWER = 3
STEPS = 10


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """P asks once for what D holds."""
    released = NixlPullConnectorScheduler.get_num_new_matched_tokens

    def matched(self: Any, request: Any, num_computed_tokens: int) -> Any:
        params = request.kv_transfer_params or {}
        if params.get("do_remote_decode") and params.get("_remote_blocks_processed"):
            return 0, False
        return released(self, request, num_computed_tokens)

    monkeypatch.setattr(NixlPullConnectorScheduler, "get_num_new_matched_tokens", matched)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path, engine_id: str) -> Scheduler:
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=4096
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=64,
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector",
            kv_role="kv_both",
            engine_id=engine_id,
            kv_connector_extra_config={"bidirectional_kv_xfer": True, "kv_recompute_threshold": 0},
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    groups = [KVCacheGroupSpec(["layer0"], FullAttentionSpec(block_size=BLOCK_SIZE, **shape))]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(
    name: str, prompt: list[int], max_tokens: int, kv_transfer_params: dict[str, Any]
) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling_params=SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            extra_args={"kv_transfer_params": kv_transfer_params},
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def step(scheduler: Scheduler, **transfers: set[Any]) -> tuple[SchedulerOutput, Any]:
    """One step: schedule, sample a token for each request with a computed prompt, update."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    through = [scheduler.requests[name] for name in names]
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] if r.num_computed_tokens >= r.num_tokens else [] for r in through],
        kv_connector_output=KVConnectorOutput(**transfers) if transfers else None,
    )
    return output, scheduler.update_from_output(output, sampled)


def params_of(outputs: Any) -> Any:
    """The transfer parameters of a finished request."""
    return outputs[0].outputs[0].kv_transfer_params


def first_turn(prefill: Scheduler, decode: Scheduler, prompt: list[int]) -> Any:
    """P computes the prompt, D loads it and answers. Returns the parameters in D's answer."""
    prefill.add_request(make_request("turn1", prompt, 1, {"do_remote_decode": True}))
    outputs: Any = {}
    while not outputs:
        _, outputs = step(prefill)
    decode.add_request(make_request("turn1", prompt, ANSWER, params_of(outputs)))
    step(decode)
    step(decode, finished_recving={"turn1"})
    step(prefill, finished_sending={"turn1"})
    for _ in range(ANSWER):
        _, outputs = step(decode)
    held = params_of(outputs)
    assert held["do_remote_decode"]
    assert held["remote_num_tokens"] == len(prompt) + ANSWER - 1
    return held


def test_p_serves_a_turn_of_one_token(tmp_path: Path) -> None:
    prefill, decode = make_scheduler(tmp_path, "P"), make_scheduler(tmp_path, "D")
    held = first_turn(prefill, decode, PROMPT)
    prefill.reset_prefix_cache()
    prefill.add_request(make_request("turn2", PROMPT, 1, held))
    output, _ = step(prefill)
    assert "turn2" in output.kv_connector_metadata.reqs_to_recv
    step(prefill, finished_recving={"turn2"})
    reads = []
    for _ in range(STEPS):
        if "turn2" not in prefill.requests or prefill.requests["turn2"].is_finished():
            return
        output, _ = step(prefill)
        reads += list(output.kv_connector_metadata.reqs_to_recv)
    status = prefill.requests["turn2"].status.name
    held_blocks = len(prefill.kv_cache_manager.get_block_ids("turn2")[0])
    assert reads, (
        f"After {STEPS} steps the turn is {status}, holds {held_blocks} block, and no read "
        "is in progress"
    )
