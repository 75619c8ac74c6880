"""vLLM 0.32.0, NixlPushConnector, Mamba layers in align mode, and streaming input.

D has the first part of a session in its prefix cache, up to the last token, and loads nothing. The
push connector leaves `do_remote_prefill` set then, where the pull connector clears it. When the
session is preempted in a later part, D asks for its whole prompt, which contains the answers and
the later parts. P has been sent the first part only, and its write is taken for all of them.

Run: pytest --noconftest test_session_loads_more_than_sent.py
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
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.push_scheduler import (
    NixlPushConnectorScheduler,
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
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "and P has been sent"

BLOCK_SIZE = 16
NUM_BLOCKS = 100
SENT = 4 * BLOCK_SIZE
"""Tokens of the first part that P computes. D computes one more."""

ANSWER = 3
NEXT = [2000 + i for i in range(40)]


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that ran without a load does not ask for one after a preemption, as with the pull
    connector. When it ends, the connector still lets P free the blocks."""
    released = NixlPushConnectorScheduler.get_num_new_matched_tokens

    def matched(self: Any, request: Any, num_computed_tokens: int) -> Any:
        if request.num_preemptions:
            return 0, False
        return released(self, request, num_computed_tokens)

    monkeypatch.setattr(NixlPushConnectorScheduler, "get_num_new_matched_tokens", matched)


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
            kv_connector="NixlPushConnector", kv_role="kv_consumer", engine_id="D"
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


def make_request(name: str, prompt: list[int], *, in_session: bool) -> Request:
    """A request, or a part of a session. P computes its tokens but the last one."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": "P",
        "remote_request_id": name,
        "remote_host": "localhost",
        "remote_port": 1234,
        "tp_size": 1,
    }
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        sampling_params=SamplingParams(
            max_tokens=ANSWER, ignore_eos=True, extra_args={"kv_transfer_params": params}
        ),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
        resumable=in_session,
    )


def step(scheduler: Scheduler, **transfers: set[str]) -> SchedulerOutput:
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
    scheduler.update_from_output(output, sampled)
    return output


def test_d_loads_what_p_was_sent(tmp_path: Path) -> None:
    decode, first_part = make_scheduler(tmp_path), list(range(SENT + 1))
    decode.add_request(make_request("before", first_part, in_session=False))
    step(decode)
    step(decode, finished_recving={"before"})
    while decode.requests:
        step(decode)

    decode.add_request(make_request("session", first_part, in_session=True))
    assert step(decode).num_scheduled_tokens == {"session": 1}  # a hit of all that P computes
    while decode.requests["session"].status != RequestStatus.WAITING_FOR_STREAMING_REQ:
        step(decode)
    decode.add_request(make_request("session", NEXT, in_session=True))
    step(decode)
    assert decode.reset_prefix_cache(reset_running_requests=True)
    output = decode.schedule()
    session = decode.requests["session"]
    registered = output.kv_connector_metadata.push_registrations
    assert not registered or session.num_computed_tokens <= SENT, (
        f"D registers the session for a write and counts {session.num_computed_tokens} tokens as "
        f"loaded, and P has been sent {SENT} of them"
    )
