"""vLLM 0.32.0, NixlConnector, a model with sliding-window layers and no Mamba layers.

D loads the KV of all N prompt tokens and computes token N again, to sample from it. P and D both
compute the needed window as if token N + 1 came next. Token N reads one token further to the left,
down to token N - window + 1. If a block ends with that token, P has freed the block and D has the
null block in its place. Token N then attends to the content of the null block.

Run: pytest --noconftest test_window_of_loaded_tokens.py
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
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import (
    NixlBaseConnectorScheduler,
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
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "attend to the null block, at these positions"

BLOCK_SIZE = 16
WINDOW = 128
NUM_BLOCKS = 1000
WINDOW_GROUP = 1
PROMPT_LENGTHS = range(144, 160)


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """P leaves one token to D for a window too, as it does for a Mamba state."""
    released = NixlBaseConnectorScheduler._prefill_backoff

    def backoff(self: Any) -> Any:
        groups = self.kv_cache_config.transfer_groups
        windowed = any(isinstance(g.kv_cache_spec, SlidingWindowSpec) for g in groups)
        return max(released(self), int(windowed))

    monkeypatch.setattr(NixlBaseConnectorScheduler, "_prefill_backoff", backoff)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path, engine_id: str, role: str) -> Scheduler:
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
            max_num_batched_tokens=4096,
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector", kv_role=role, engine_id=engine_id
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = NUM_BLOCKS
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    window = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=WINDOW, **shape)
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], window)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, prompt: list[int], kv_transfer_params: dict[str, Any]) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": kv_transfer_params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def step(scheduler: Scheduler, **transfers: set[str]) -> tuple[SchedulerOutput, Any]:
    """One step: schedule, sample a token for each request with a computed prompt, update."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(**transfers) if transfers else None,
    )
    return output, scheduler.update_from_output(output, sampled)


def transfer(prefill: Scheduler, decode: Scheduler, name: str, prompt: list[int]) -> Any:
    """P computes the prompt, and D loads it. Returns the data with which D's worker runs the
    request."""
    prefill.add_request(make_request(name, prompt, {"do_remote_decode": True}))
    _, outputs = step(prefill)
    params = outputs[0].outputs[0].kv_transfer_params
    decode.add_request(make_request(name, prompt, params))
    output, _ = step(decode)
    assert name in output.kv_connector_metadata.reqs_to_recv
    step(decode, finished_recving={name})
    step(prefill, finished_sending={name})
    output, _ = step(decode)
    (to_run,) = output.scheduled_new_reqs
    assert output.num_scheduled_tokens == {name: 1}
    assert to_run.num_computed_tokens == len(prompt) - 1
    return to_run


def test_what_the_window_of_the_last_token_reads_is_there(tmp_path: Path) -> None:
    prefill = make_scheduler(tmp_path, "P", "kv_producer")
    decode = make_scheduler(tmp_path, "D", "kv_consumer")
    null_block = decode.kv_cache_manager.block_pool.null_block.block_id
    missing = {}
    for length in PROMPT_LENGTHS:
        prompt = [100 * length + i for i in range(length)]
        to_run = transfer(prefill, decode, f"r{length}", prompt)
        # The token at position p attends to positions p - WINDOW + 1 to p.
        first_read = to_run.num_computed_tokens - WINDOW + 1
        table = to_run.block_ids[WINDOW_GROUP]
        read = {p: table[p // BLOCK_SIZE] for p in range(first_read, len(prompt))}
        nulls = [p for p, block in read.items() if block == null_block]
        if nulls:
            missing[length] = nulls
    assert not missing, (
        f"Of prompts of {PROMPT_LENGTHS.start} to {PROMPT_LENGTHS.stop - 1} tokens (window "
        f"{WINDOW}, blocks of {BLOCK_SIZE}), the last tokens of those of {list(missing)} attend to "
        f"the null block, at these positions: {missing}"
    )
