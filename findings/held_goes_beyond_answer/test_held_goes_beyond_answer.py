"""vLLM 0.32.0, NixlConnector with bidirectional_kv_xfer, speculative decoding on D.

D's answer ends by its length. The last step of D accepts more drafts than the answer needs. The
scheduler cuts off the surplus but still counts it as computed, and returns this count to the
router. The next turn has other tokens at these positions, and P uses D's KV of the drafts for them.
(With async scheduling, the tokens of a step in flight are counted too.)

Run: pytest --noconftest test_held_goes_beyond_answer.py
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
    SpeculativeConfig,
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
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "of which the conversation ends after"

BLOCK_SIZE = 16
NUM_BLOCKS = 1000
PROMPT = [1000 + i for i in range(100)]
ANSWER = 18
DRAFTS = 3
NEXT = [2000 + i for i in range(30)]


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """D offers no more tokens than its request has."""
    released = NixlPullConnectorScheduler.request_finished

    def finished(self: Any, request: Any, block_ids: Any) -> Any:
        delay, params = released(self, request, block_ids)
        if params:
            settled = request.num_computed_tokens - request.num_in_flight_tokens
            params["remote_num_tokens"] = min(settled, request.num_tokens)
        return delay, params

    monkeypatch.setattr(NixlPullConnectorScheduler, "request_finished", finished)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path, engine_id: str, drafts: int = 0) -> Scheduler:
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
            kv_connector="NixlConnector",
            kv_role="kv_both",
            engine_id=engine_id,
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={"bidirectional_kv_xfer": True},
        ),
        speculative_config=SpeculativeConfig(
            method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=2
        )
        if drafts
        else None,
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
    """One step. Each request with a computed prompt verifies its drafts, which are all right, and
    samples one token; then new drafts are set."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    verified = output.scheduled_spec_decode_tokens
    sampled = []
    for name in names:
        request = scheduler.requests[name]
        right = [7 for token in verified.get(name, ()) if token >= 0]
        through = request.num_computed_tokens >= request.num_tokens
        sampled.append([*right, 7] if through else [])
    result = scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=KVConnectorOutput(**transfers) if transfers else None,
        ),
    )
    if scheduler.num_spec_tokens and names:
        drafts = [[7] * scheduler.num_spec_tokens for _ in names]
        scheduler.update_draft_token_ids(DraftTokenIds(names, drafts))
    return output, result


def params_of(outputs: Any) -> Any:
    """The transfer parameters of a finished request, None if no request finished."""
    return next((o.kv_transfer_params for o in outputs[0].outputs), None) if outputs else None


def first_turn(prefill: Scheduler, decode: Scheduler) -> Any:
    """P computes the prompt, D loads it and answers. Returns the parameters in D's answer."""
    prefill.add_request(make_request("turn1", PROMPT, 1, {"do_remote_decode": True}))
    _, outputs = step(prefill)
    decode.add_request(make_request("turn1", PROMPT, ANSWER, params_of(outputs)))
    step(decode)
    step(prefill, finished_sending={"turn1"})
    _, outputs = step(decode, finished_recving={"turn1"})
    while params_of(outputs) is None:
        _, outputs = step(decode)
    return params_of(outputs)


def test_p_loads_what_the_conversation_has(tmp_path: Path) -> None:
    prefill, decode = make_scheduler(tmp_path, "P"), make_scheduler(tmp_path, "D", DRAFTS)
    held = first_turn(prefill, decode)
    answered = len(PROMPT) + ANSWER
    prefill.reset_prefix_cache()
    prefill.add_request(make_request("turn2", PROMPT + [7] * ANSWER + NEXT, 1, held))
    step(prefill)
    step(prefill, finished_recving={"turn2"})
    output, _ = step(prefill)
    (to_run,) = output.scheduled_new_reqs
    assert to_run.num_computed_tokens <= answered, (
        f"P continues after {to_run.num_computed_tokens} tokens that D holds, of which the "
        f"conversation ends after {answered}: what follows are drafts that were cut off, and "
        "the next turn has other tokens there"
    )
