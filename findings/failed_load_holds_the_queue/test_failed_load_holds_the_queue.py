"""vLLM 0.32.0, NixlConnector, sliding-window layers, kv_load_failure_policy recompute.

D loads two prompts. The load of the first one fails, and its blocks are freed. To compute a prompt
takes blocks for all of its tokens in each group, and to load it only the last window. So the first
request may not fit any more, and it is still at the head of the queue of requests that hold blocks.
Each step ends at it. The second request has its prompt, needs one free block, and never runs.

Run: pytest --noconftest test_failed_load_holds_the_queue.py
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

FAILS_WITH = "waits for ever"

BLOCK_SIZE = 16
WINDOW = 16
POOL = 7
"""Blocks that requests can have; the null block is one more."""
LONG, SHORT = 40, 16
"""Prompts, in tokens. The long one takes 4 blocks to load and 6 to compute."""
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose failed load has lost all blocks leaves the queue of those that hold some."""
    released = Scheduler._handle_blocked_waiting_request

    def handled(self: Any, request: Request) -> bool:
        held = self._holds_kv_blocks(request)
        ready = released(self, request)
        return ready and not (held and not self._holds_kv_blocks(request))

    monkeypatch.setattr(Scheduler, "_handle_blocked_waiting_request", handled)


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
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=64
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=64,
            max_model_len=64,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector",
            kv_role="kv_consumer",
            engine_id="D",
            kv_load_failure_policy="recompute",
        ),
        device_config=DeviceConfig("cpu"),
    )
    vllm_config.cache_config.num_gpu_blocks = POOL + 1
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    window = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=WINDOW, **shape)
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], window)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(POOL + 1, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, first: int, num_tokens: int) -> Request:
    """A request whose whole prompt P offers."""
    init_none_hash(sha256)
    blocks = list(range(1, -(-num_tokens // BLOCK_SIZE) + 1))
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": (blocks, blocks[-1:]),
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


def step(scheduler: Scheduler, **transfers: set[Any]) -> SchedulerOutput:
    """One step: schedule, sample one token for each scheduled request, and report the loads."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[7] for _ in names],
            kv_connector_output=KVConnectorOutput(**transfers) if transfers else None,
        ),
    )
    return output


def test_a_loaded_request_runs_beside_one_whose_load_failed(tmp_path: Path) -> None:
    decode = make_scheduler(tmp_path)
    for name, first, tokens in (("long", 0, LONG), ("short", 1000, SHORT)):
        decode.add_request(make_request(name, first, tokens))
    loads = step(decode).kv_connector_metadata.reqs_to_recv
    assert set(loads) == {"long", "short"}
    step(decode, finished_recving={"long", "short"}, failed_recving={"long"})
    for _ in range(STEPS):
        step(decode)
    free = decode.kv_cache_manager.block_pool.get_num_free_blocks()
    waits = sorted(decode.requests)
    assert not waits, (
        f"D runs nothing with {free} of {POOL} blocks free: after {STEPS} steps {waits} are not "
        "served, although 'short' is loaded and fits. It waits for ever"
    )
