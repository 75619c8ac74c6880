"""vLLM 0.32.0, NixlConnector, and Mamba layers in align mode. Reported as vllm#52773.

D's attention cache covers all tokens that P offers, but D has no state at their end. vLLM asks the
connector for tokens after this hit, and there are none. Because the state is missing, vLLM then
reduces the hit to the common hit of all groups, and does not ask the connector again. D computes
the whole prompt, although P has its state. The output is correct.

Run: pytest --noconftest test_full_hit_gives_up_load.py
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
    MambaSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "computes it from the start"

BLOCK_SIZE = 16
NUM_BLOCKS = 100
LONG, SHORT = 6 * BLOCK_SIZE, 4 * BLOCK_SIZE
"""Tokens that P offers, of two prompts with the same prefix. D computes one more token."""


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the connector has nothing after a hit without a state, it is asked after the shorter hit
    that all groups have."""
    released = Scheduler._get_local_prefix_cache_hit

    def hit(self: Any, request: Request, *more: Any) -> Any:
        blocks, num_local, boundary, diverged = released(self, request, *more)
        if diverged and self.connector.get_num_new_matched_tokens(request, num_local)[0] == 0:
            return *self.kv_cache_manager.get_computed_blocks(request), False
        return blocks, num_local, boundary, diverged

    monkeypatch.setattr(Scheduler, "_get_local_prefix_cache_hit", hit)


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
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=1024
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=4096,
            max_model_len=1024,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector="NixlConnector", kv_role="kv_consumer", engine_id="D"
        ),
        device_config=DeviceConfig("cpu"),
    )
    cache = vllm_config.cache_config
    cache.num_gpu_blocks = NUM_BLOCKS
    cache.mamba_cache_mode, cache.mamba_block_size = "align", BLOCK_SIZE
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], mamba)]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(NUM_BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, num_offered: int) -> Request:
    """A request with one token more than P offers. P has its state in block 99."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": (list(range(1, num_offered // BLOCK_SIZE + 1)), [99]),
        "remote_engine_id": "P",
        "remote_request_id": name,
        "remote_host": "localhost",
        "remote_port": 1234,
        "remote_num_tokens": num_offered,
        "tp_size": 1,
    }
    return Request(
        request_id=name,
        prompt_token_ids=list(range(num_offered + 1)),
        sampling_params=SamplingParams(
            max_tokens=1, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def step(scheduler: Scheduler, **transfers: set[str]) -> SchedulerOutput:
    """One step: schedule, sample one token for each scheduled request, update."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    sampled = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] for _ in names],
        kv_connector_output=KVConnectorOutput(**transfers) if transfers else None,
    )
    scheduler.update_from_output(output, sampled)
    return output


def test_d_loads_the_state_that_p_offers(tmp_path: Path) -> None:
    decode = make_scheduler(tmp_path)
    decode.add_request(make_request("long", LONG))
    step(decode)
    step(decode, finished_recving={"long"})
    assert step(decode).num_scheduled_tokens == {"long": 1}
    assert not decode.requests

    decode.add_request(make_request("short", SHORT))
    output = decode.schedule()
    to_load = output.kv_connector_metadata.reqs_to_recv["short"].local_block_ids
    computed = output.num_scheduled_tokens.get("short", 0)
    assert any(to_load), (
        f"P offers {SHORT} tokens with their state, and D's attention cache has them all; D "
        f"loads no state, drops the hit and computes it from the start: {computed} tokens"
    )
    assert computed == 0
