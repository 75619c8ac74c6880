"""Real schedulers and requests."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    KVTransferConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

SHAPE: Any = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
STATE: Any = {"shapes": ((2, 2),), "dtypes": (torch.float32,)}
SPECS: Any = [
    FullAttentionSpec(block_size=1, **SHAPE),
    SlidingWindowSpec(block_size=1, sliding_window=1, **SHAPE),
    MambaSpec(block_size=1, mamba_cache_mode="align", **STATE),
]
EAGLE = [0]
NUM_BLOCKS = BLOCK_SIZE = SCHEDULER_BLOCK_SIZE = HASH_BLOCK_SIZE = MAX_NUM_SEQS = 1
MAX_NUM_BATCHED_TOKENS = MAMBA_BLOCK_SIZE = DRAFTS = RETENTION = 1
POLICY: Any = "fcfs"
LOAD_FAILURE: Any = "fail"
MAMBA_CACHE_MODE: Any = "align"
ENGINE_ID = CONNECTOR = DRAFTER = KV_ROLE = ""
SCHEDULER_OPTIONS: dict[str, object] = {}
PREFIX_CACHING = NO_LOOKAHEAD = OVERLAPS = True


def supported(callee: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """The arguments that this vLLM has."""
    names = inspect.signature(callee).parameters
    return {name: value for name, value in arguments.items() if name in names}


def make_scheduler(folder: Path) -> Scheduler:
    init_none_hash(sha256)
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    sizes = {"hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 512}
    sizes |= {"max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(model | sizes))
    model_config = ModelConfig(
        model=str(folder),
        tokenizer=str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=4096,
        **supported(ModelConfig, enable_prompt_embeds=True),  #@ embeds
    )
    config = VllmConfig(
        model_config=model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=max(MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS),
            policy=POLICY,  #@ priority
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=False,
            async_scheduling=False,
            **SCHEDULER_OPTIONS,  #@ options
        ),
        cache_config=CacheConfig(
            block_size=BLOCK_SIZE, enable_prefix_caching=PREFIX_CACHING
        ),
        kv_transfer_config=KVTransferConfig(  #@ connector
            kv_connector=CONNECTOR,  #@ connector
            kv_connector_module_path=__name__,  #@ store
            kv_role=KV_ROLE,  #@ connector
            engine_id=ENGINE_ID,  #@ connector
            kv_load_failure_policy=LOAD_FAILURE,  #@ connector
            kv_connector_extra_config={  #@ turns
                "bidirectional_kv_xfer": True,  #@ turns
                "kv_recompute_threshold": 0,  #@ turns
            },  #@ turns
        ),  #@ connector
        speculative_config=SpeculativeConfig(  #@ drafts
            method=DRAFTER,  #@ drafts
            model=str(folder),  #@ eagle
            num_speculative_tokens=DRAFTS,  #@ drafts
            target_model_config=model_config,  #@ drafts
            target_parallel_config=ParallelConfig(),  #@ drafts
            **supported(  #@ drafts
                SpeculativeConfig,  #@ drafts
                disable_lookahead_block_hashes=NO_LOOKAHEAD,  #@ drafts
            ),  #@ drafts
        ),  #@ drafts
        kv_events_config=KVEventsConfig(  #@ events
            enable_kv_cache_events=True,  #@ events
            publisher="null",  #@ events
        ),  #@ events
        device_config=DeviceConfig("cpu"),
    )
    # An engine sets these when it knows its model and its memory.
    config.scheduler_config.async_scheduling = OVERLAPS
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    config.scheduler_config.max_num_batched_tokens = MAX_NUM_BATCHED_TOKENS
    config.scheduler_config.max_num_scheduled_tokens = MAX_NUM_BATCHED_TOKENS
    config.cache_config.block_size = BLOCK_SIZE
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.cache_config.enable_prefix_caching = PREFIX_CACHING
    config.cache_config.mamba_cache_mode = MAMBA_CACHE_MODE  #@ mamba
    config.cache_config.mamba_block_size = MAMBA_BLOCK_SIZE  #@ mamba
    groups = []
    for i, spec in enumerate(SPECS):
        groups.append(KVCacheGroupSpec([f"layer{i}"], spec))  #@ flagged: groups.append(KVCacheGroupSpec([f"layer{i}"], spec, is_eagle_group=i in EAGLE))
    scheduler_class = config.scheduler_config.get_scheduler_cls()
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
            **supported(  #@ retention
                KVCacheConfig,  #@ retention
                prefix_cache_retention_interval=RETENTION,  #@ retention
            ),  #@ retention
        ),
        structured_output_manager=StructuredOutputManager(config),
        log_stats=False,
        **supported(
            Scheduler,
            block_size=SCHEDULER_BLOCK_SIZE,
            hash_block_size=HASH_BLOCK_SIZE,
        ),
    )


def make_request(
    name: str,
    prompt: str,
    max_tokens: int,
    params: dict[str, Any] | None = None,  #@ connected
    priority: int = 0,  #@ priority
    arrival_time: float = 0,  #@ priority
    resumable: bool = False,  #@ sessions
    embeds: bool = False,  #@ embeds
    cache_salt: str | None = None,  #@ salts
    adapter: LoRARequest | None = None,  #@ adapters
) -> Request:
    """A request. Each character of its prompt is one token."""
    ids = [ord(token) for token in prompt]
    embedded = torch.tensor([[float(i)] * 4 for i in ids])  #@ embeds
    return Request(
        request_id=name,
        prompt_token_ids=ids,  #@ embeds: prompt_token_ids=None if embeds else ids,
        prompt_embeds=embedded if embeds else None,  #@ embeds
        cache_salt=cache_salt,  #@ salts
        lora_request=adapter,  #@ adapters
        sampling_params=SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=True,
            extra_args={"kv_transfer_params": params} if params else None,  #@ connected
        ),
        pooling_params=None,
        arrival_time=arrival_time,  #@ priority
        priority=priority,  #@ priority
        resumable=resumable,  #@ sessions
        block_hasher=get_request_block_hasher(
            HASH_BLOCK_SIZE,
            sha256,
            **supported(get_request_block_hasher, num_hash_lookahead_tokens=1),  #@ ahead
        ),
    )
