"""Set-up for reproducers, with the names and arguments of vLLM's own tests.

They are those of `tests/v1/kv_connector/unit/utils.py`, which `tests/v1/core` uses too. So a
reproducer that is pasted into either folder imports the same names from there. Arguments that no
reproducer uses are left out. vLLM's functions download the config of a model from a hub; these
write the config of a small one.
"""

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
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

EOS_TOKEN_ID = 50256

MODEL_LEN_MAX = 2048
"""The maximum length of the small model, in tokens: that of vLLM's facebook/opt-125m."""

_numbers = count(1)
"""Numbers for the requests that are made without one."""


@dataclass(frozen=True)
class MockKVConfig:
    """What a `MockKVConnector` offers of each prompt, in tokens, and whether it loads it while
    other steps run."""

    matched_tokens: int = 0
    is_async: bool = False


class MockKVConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """A connector whose store has the same number of tokens of each prompt. It moves no bytes."""

    def __init__(self, vllm_config: VllmConfig, role: Any, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.config = MockKVConfig(extra["matched_tokens"], extra["is_async"])

    def get_num_new_matched_tokens(self, *_anything: Any) -> tuple[int, bool]:
        return self.config.matched_tokens, self.config.is_async

    def update_state_after_alloc(self, *_anything: Any) -> None:
        pass

    def build_connector_meta(self, *_anything: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def start_load_kv(self, *_anything: Any, **_more: Any) -> None:
        pass

    def wait_for_layer_load(self, *_anything: Any) -> None:
        pass

    def save_kv_layer(self, *_anything: Any, **_more: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass


@cache
def begin_hashing() -> None:
    """Set the hash before a first block, once in a process: equal prompts have equal hashes."""
    init_none_hash(sha256)


@cache
def _small_model() -> str:
    """Write the config of a small model, once in a process. Returns its folder."""
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    config |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    config |= {"vocab_size": 65536, "max_position_embeddings": MODEL_LEN_MAX}
    folder = tempfile.mkdtemp(prefix="small-model-")
    Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def create_vllm_config(
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 64,
    block_size: int = 16,
    max_model_len: int = 10000,
    kv_connector_extra_config: dict[str, Any] | None = None,
    kv_load_failure_policy: str = "fail",
    kv_connector: str = "NixlConnector",
    kv_connector_module_path: str | None = None,
    kv_role: str = "kv_consumer",
    disable_hybrid_kv_cache_manager: bool | None = None,
) -> VllmConfig:
    """Make the config of an engine with a connector and prefix caching, all sizes in tokens.

    The model is a small one, of at most `MODEL_LEN_MAX` tokens. What has no argument is set on the
    config before a scheduler is built.
    """
    return VllmConfig(
        model_config=ModelConfig(
            model=_small_model(),
            skip_tokenizer_init=True,
            dtype="float16",
            seed=42,
            max_model_len=min(max_model_len, MODEL_LEN_MAX),
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=disable_hybrid_kv_cache_manager,
            async_scheduling=False,
        ),
        cache_config=CacheConfig(block_size=block_size, enable_prefix_caching=True),
        kv_transfer_config=KVTransferConfig(
            kv_connector=kv_connector,
            kv_connector_module_path=kv_connector_module_path,
            kv_role=kv_role,
            kv_connector_extra_config=kv_connector_extra_config or {},
            kv_load_failure_policy=kv_load_failure_policy,
        ),
        device_config=DeviceConfig("cpu"),
    )


def create_scheduler(
    vllm_config: VllmConfig,
    num_blocks: int = 10000,
    kv_cache_config: KVCacheConfig | None = None,
    hash_block_size: int | None = None,
) -> Scheduler:
    """Make the scheduler of an engine. Without a `kv_cache_config` it has one group, of full
    attention; `num_blocks` counts the null block."""
    block_size = vllm_config.cache_config.block_size
    if kv_cache_config is None:
        spec = FullAttentionSpec(
            block_size=block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        groups = [KVCacheGroupSpec(["layer"], spec)]
        kv_cache_config = KVCacheConfig(num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
    vllm_config.cache_config.num_gpu_blocks = kv_cache_config.num_blocks
    overlaps = vllm_config.scheduler_config.async_scheduling
    return (AsyncScheduler if overlaps else Scheduler)(
        vllm_config=vllm_config,
        kv_cache_config=kv_cache_config,
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=block_size,
        hash_block_size=hash_block_size,
        log_stats=True,
    )


def create_request(
    request_id: int | None = None,
    num_tokens: int = 10,
    common_prefix_len: int = 0,
    max_tokens: int = 16,
    do_remote_decode: bool = False,
    do_remote_prefill: bool = False,
    block_size: int = 16,
) -> Request:
    """Make the request `id-N` for N = `request_id`.

    Its prompt has `num_tokens` tokens, of which the first `common_prefix_len` are 1 and the others
    are multiples of N. With `do_remote_decode` it is P's part of a request, with
    `do_remote_prefill` D's. `block_size` is the number of tokens in a hash.
    """
    number = next(_numbers) if request_id is None else request_id
    begin_hashing()
    params: dict[str, Any] | None = None
    if do_remote_decode:
        params = {"do_remote_prefill": False, "do_remote_decode": True}
    elif do_remote_prefill:
        params = {"do_remote_prefill": True, "do_remote_decode": False}
        params |= {"remote_engine_id": "my-engine-id", "remote_request_id": f"prefill-{number}"}
        params |= {"remote_host": "my-host", "remote_port": 1234, "tp_size": 1}
        params |= {"remote_block_ids": [0, 1, 2]}
    own = [place * number for place in range(num_tokens - common_prefix_len)]
    sampling_params = SamplingParams(max_tokens=1 if do_remote_decode else max_tokens)
    sampling_params.update_from_generation_config({}, EOS_TOKEN_ID)
    request = Request(
        request_id=f"id-{number}",
        prompt_token_ids=[1] * common_prefix_len + own,
        sampling_params=sampling_params,
        pooling_params=None,
        block_hasher=get_request_block_hasher(block_size, sha256),
    )
    request.kv_transfer_params = params
    return request


def create_model_runner_output(
    reqs: list[Request],
    finished_sending: set[str] | None = None,
    finished_recving: set[str] | None = None,
    invalid_block_ids: set[int] | None = None,
    token_id: int = 0,
    kv_connector_worker_meta: Any = None,
) -> ModelRunnerOutput:
    """Make the output of a step in which each of these requests samples one token, with the
    reports of the connector's worker."""
    reports = (finished_sending, finished_recving, invalid_block_ids, kv_connector_worker_meta)
    names = [request.request_id for request in reqs]
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[token_id] for _ in names],
        kv_connector_output=None
        if all(report is None for report in reports)
        else KVConnectorOutput(
            finished_sending=finished_sending,
            finished_recving=finished_recving,
            invalid_block_ids=invalid_block_ids or set(),
            kv_connector_worker_meta=kv_connector_worker_meta,
        ),
    )


def make_kv_cache_config(
    block_size: int,
    swa_enabled: bool = False,
    mamba_enabled: bool = False,
    sw_size: int = 128,
    num_blocks: int = 100,
    mamba_cache_mode: str = "none",
) -> KVCacheConfig:
    """Make a KV cache with a group of full attention, then one of sliding windows of `sw_size`
    tokens and one of Mamba states if they are enabled. `num_blocks` counts the null block."""
    shape: dict[str, Any] = {"num_kv_heads": 4, "head_size": 16, "dtype": torch.float16}
    full = FullAttentionSpec(block_size=block_size, **shape)
    groups = [KVCacheGroupSpec(["layer0", "layer2"], full)]
    if swa_enabled:
        window = SlidingWindowSpec(block_size=block_size, sliding_window=sw_size, **shape)
        groups.append(KVCacheGroupSpec(["layer1", "layer3"], window))
    if mamba_enabled:
        mamba = MambaSpec(
            block_size=block_size,
            shapes=((16,), (16,)),
            dtypes=(torch.float16, torch.float16),
            mamba_cache_mode=mamba_cache_mode,
        )
        groups.append(KVCacheGroupSpec(["mamba0", "mamba1"], mamba))
    return KVCacheConfig(num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)
