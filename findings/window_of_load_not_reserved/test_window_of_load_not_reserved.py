"""vLLM 0.32.0, NixlConnector, and layers of full attention, of a sliding window, and of Mamba. No
public report was found.

D loads two prompts. For a group of windows the admission check counts no more blocks than one
request can hold at a time, and takes the length of the table off, in which the positions before the
window have the null block. So behind the window it counts nothing, and no block is kept free for
the window's next block. The second load takes it. Then both requests are loaded and wait for a
block, none runs that could be preempted, and they never run.

Run: pytest --noconftest test_window_of_load_not_reserved.py
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
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

FAILS_WITH = "wait for ever"

BLOCK_SIZE = 16
WINDOW = 16
NUM_LOADED = 4 * BLOCK_SIZE
"""Tokens that P offers; the prompt has one more."""
MAX_MODEL_LEN = NUM_LOADED + BLOCK_SIZE
CHUNK = BLOCK_SIZE
"""Tokens of a step. With the window it limits how many blocks a request holds at a time."""
POOL = 14
"""Blocks that requests can have, beside the null block. A load takes 4, 1 and 1; the last token of
the prompt needs one more of each group."""
STEPS = 20


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is about blocks that are held, so the positions before the window come on top."""
    released = SingleTypeKVCacheManager.get_num_blocks_to_allocate

    def to_allocate(self: Any, *args: Any, **given: Any) -> Any:
        limit = self.max_admission_blocks_per_request
        if limit is None or not given.get("apply_admission_cap"):
            return released(self, *args, **given)
        computed = args[3]
        self.max_admission_blocks_per_request = (
            limit + self.get_num_skipped_tokens(computed) // self.block_size
        )
        try:
            return released(self, *args, **given)
        finally:
            self.max_admission_blocks_per_request = limit

    monkeypatch.setattr(SingleTypeKVCacheManager, "get_num_blocks_to_allocate", to_allocate)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler(folder: Path) -> Scheduler:
    """D's scheduler."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 65536}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 3}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model))
    vllm_config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=MAX_MODEL_LEN,
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=CHUNK,
            max_model_len=MAX_MODEL_LEN,
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
    cache.num_gpu_blocks = POOL + 1
    cache.mamba_cache_mode, cache.mamba_block_size = "align", BLOCK_SIZE
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    window = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=WINDOW, **shape)
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    groups = [
        KVCacheGroupSpec(["layer0"], full),
        KVCacheGroupSpec(["layer1"], window),
        KVCacheGroupSpec(["layer2"], mamba),
    ]
    return Scheduler(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(POOL + 1, kv_cache_tensors=[], kv_cache_groups=groups),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        log_stats=False,
    )


def make_request(name: str, first: int) -> Request:
    """A request with one token more than P offers."""
    init_none_hash(sha256)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": ([1, 2, 3, 4], [5], [6]),
        "remote_engine_id": "P",
        "remote_request_id": name,
        "remote_host": "localhost",
        "remote_port": 1234,
        "remote_num_tokens": NUM_LOADED,
        "tp_size": 1,
    }
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + NUM_LOADED + 1)),
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


def test_two_loaded_prompts_are_served(tmp_path: Path) -> None:
    decode = make_scheduler(tmp_path)
    for name, first in (("one", 0), ("two", 1000)):
        decode.add_request(make_request(name, first))
    loading: set[str] = set()
    for _ in range(STEPS):
        step(decode, loading)
    free = decode.kv_cache_manager.block_pool.get_num_free_blocks()
    waits = sorted(decode.requests)
    assert not waits, (
        f"D runs nothing with {free} of {POOL} blocks free: after {STEPS} steps {waits}, which are "
        "loaded, are not served. They wait for ever"
    )
