"""The contract: the symbols that single features of one engine need."""

from kvproof.live.contract.entry import alike, entries
from kvproof.live.contract.table_core import (
    CONFIG,
    MANAGERS,
    OUTPUTS,
    REQUEST,
    SPECS,
    UTILS,
)

KV_CACHE_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
EVENTS = "vllm.distributed.kv_events"
COORDINATORS = "vllm.v1.core.kv_cache_coordinator"

_DROPPED = "Request.async_tokens_to_discard | Request.discard_latest_async_tokens"
"""Before vllm#48245 a request has only the outputs that are dropped after a reset."""

GROUPS = (
    *entries(
        "windows",
        (f"{SPECS}:SlidingWindowSpec", "a sliding-window group"),
        (f"{SPECS}:SlidingWindowSpec(sliding_window)", "its width in tokens"),
    ),
    *entries(
        "states",
        (f"{SPECS}:MambaSpec", "a Mamba group"),
        (f"{SPECS}:MambaSpec(block_size)", "the distance between cached states, in tokens"),
        *alike(f"{SPECS}:MambaSpec(*)", "the shape of a state", "shapes", "dtypes"),
        (f"{SPECS}:MambaSpec(mamba_cache_mode)", "whether states are cached"),
        (f"{SPECS}:MambaSpec(num_speculative_blocks)", "the states of drafts"),
        (f"{CONFIG}:CacheConfig.mamba_cache_mode", "whether states are cached"),
        (f"{CONFIG}:CacheConfig.mamba_block_size", "the distance between cached states, in tokens"),
    ),
    *entries(
        "shared prefixes",
        (
            "Request.shared_prefix_boundary"
            f" | !{MANAGERS}:SlidingWindowManager.reachable_block_mask(reachable_boundaries)",
            "the shared prefix boundary; older releases have none",
        ),
    ),
    *entries(
        "retention",
        (
            f"{SPECS}:KVCacheConfig(prefix_cache_retention_interval)"
            " | vllm.envs:VLLM_PREFIX_CACHE_RETENTION_INTERVAL",
            "the retention interval; in older releases a variable of the environment",
        ),
        ("KVCacheCoordinator.retention_interval", "whether the interval was taken"),
    ),
    *entries(
        "partial hits",
        (
            "KVCacheCoordinator.enable_partial_hash_hits"
            f" | {COORDINATORS}:HybridKVCacheCoordinator~enable_partial_hash_hits",
            "whether hits may end inside a block",
        ),
        ("SingleTypeKVCacheManager._pending_cow_copies", "blocks that the worker will copy"),
        ("SchedulerOutput.kv_cache_block_copies", "blocks that the worker copies"),
        ("BlockPool.cached_block_hashes_by_block", "other prefixes of the same block"),
    ),
)

ENVIRONMENT = (
    *entries(
        "priority",
        (f"{REQUEST}:Request(priority)", "the order of requests"),
    ),
    *entries(
        "whole prompts",
        (f"{CONFIG}:SchedulerConfig(scheduler_reserve_full_isl)", "whether whole prompts must fit"),
    ),
    *entries(
        "long prefills",
        (f"{CONFIG}:SchedulerConfig(long_prefill_token_threshold)", "the tokens of one request"),
    ),
    *entries(
        "states where prompts part",
        (
            f"{CONFIG}:CacheConfig(enable_mamba_shared_prefix_checkpoint)",
            "a state is cached where prompts part",
        ),
    ),
    *entries(
        "watermark",
        (f"{CONFIG}:SchedulerConfig(watermark)", "the share of the pool that is kept free"),
    ),
    *entries(
        "aborts",
        ("Scheduler.finish_requests", "a request is aborted"),
        (f"{REQUEST}:RequestStatus.FINISHED_ABORTED", "a request is aborted"),
    ),
    *entries("evictions", ("KVCacheManager.evict_blocks", "a block is evicted")),
    *entries(
        "resets",
        ("Scheduler.reset_prefix_cache", "the cache is reset"),
        ("Scheduler.reset_prefix_cache(reset_running_requests)", "a reset with running requests"),
    ),
    *entries(
        "sessions",
        (f"{REQUEST}:Request(resumable)", "a part of a session"),
        ("Request.resumable", "whether more parts may arrive"),
        ("Request.prompt_token_ids", "the parts of the prompt so far"),
        (f"{REQUEST}:RequestStatus.WAITING_FOR_STREAMING_REQ", "a session waits for a part"),
    ),
    *entries(
        "extra keys",
        (f"{REQUEST}:Request(cache_salt)", "a request with a salt"),
        (f"{REQUEST}:Request(lora_request)", "a request with a LoRA adapter"),
        *(
            (f"vllm.lora.request:LoRARequest({name})", "a LoRA adapter")
            for name in ("lora_name", "lora_int_id", "lora_path")
        ),
    ),
    *entries(
        "embeddings",
        (f"{CONFIG}:ModelConfig(enable_prompt_embeds)", "prompt embeddings are enabled"),
        (f"{REQUEST}:Request(prompt_embeds)", "a prompt of embeddings"),
    ),
)

STEPS = (
    *entries(
        "async",
        *(
            (f"Request.{name} | {_DROPPED}", "outputs that a preemption made stale")
            for name in ("num_stale_output_tokens", "drop_stale_output")
        ),
        (
            "Scheduler.deferred_frees | !Request.last_sched_seq",
            "blocks that are freed when a step ends; in older releases none",
        ),
        ("Scheduler.processed_step_seq | !Request.last_sched_seq", "the last processed step"),
        ("Request.spec_token_ids", "drafts to verify"),
        ("SchedulerOutput.scheduled_spec_decode_tokens", "drafts to verify"),
    ),
    *entries(
        "drafts",
        (f"{CONFIG}:SpeculativeConfig", "a drafter"),
        *alike(
            f"{CONFIG}:SpeculativeConfig(*)",
            "a drafter",
            *("method", "model", "num_speculative_tokens", "target_model_config"),
            *("target_parallel_config", "parallel_drafting"),
        ),
        (
            f"{CONFIG}:SpeculativeConfig(disable_lookahead_block_hashes)"
            f" | !{KV_CACHE_MANAGER}(num_hash_lookahead_tokens)",
            "hashes without lookahead tokens, if a release has both kinds",
        ),
        (f"{CONFIG}:SpeculativeConfig.max_num_new_slots_for_drafting", "slots of its drafts"),
        (f"{CONFIG}:ParallelConfig", "a drafter"),
        (f"{CONFIG}:VllmConfig(speculative_config)", "a part of the config"),
        (f"{SPECS}:KVCacheGroupSpec(is_eagle_group)", "groups with layers of the drafter"),
        (f"{OUTPUTS}:DraftTokenIds", "the drafts of a step"),
        ("Scheduler.update_draft_token_ids", "the drafts of a step arrive"),
        ("Request.spec_token_ids", "drafts to verify"),
        ("SchedulerOutput.scheduled_spec_decode_tokens", "drafts to verify"),
    ),
    *entries(
        "lookahead hashes",
        (
            f"{CONFIG}:SpeculativeConfig(disable_lookahead_block_hashes)",
            "hashes that cover later tokens",
        ),
        (f"{UTILS}:get_request_block_hasher(num_hash_lookahead_tokens)", "the hashes of a request"),
        ("Scheduler.num_hash_lookahead_tokens", "the number of tokens that they cover"),
        (f"{EVENTS}:BlockStored.lookahead_token_ids", "these tokens in KV events"),
    ),
    *entries(
        "kv events",
        (f"{CONFIG}:KVEventsConfig", "KV events are enabled"),
        (f"{CONFIG}:KVEventsConfig(enable_kv_cache_events)", "KV events are enabled"),
        (f"{CONFIG}:KVEventsConfig(publisher)", "KV events are not sent"),
        (f"{CONFIG}:VllmConfig(kv_events_config)", "a part of the config"),
        ("Scheduler.kv_event_publisher", "the publisher of KV events"),
        ("EventPublisher.publish", "the publisher of KV events"),
        (f"{EVENTS}:KVEventBatch.events", "the published KV events"),
        ("BlockPool.kv_event_queue", "the KV events that are not published yet"),
        (f"{EVENTS}:AllBlocksCleared", "the cache was reset"),
        (f"{EVENTS}:BlockRemoved", "a block is no longer cached"),
        (f"{EVENTS}:BlockRemoved.block_hashes", "the hash of the block"),
        (f"{EVENTS}:BlockRemoved.group_idx", "the group"),
        (f"{EVENTS}:BlockStored", "blocks are cached"),
        (f"{EVENTS}:BlockStored.block_hashes", "the hashes of the blocks"),
        (f"{EVENTS}:BlockStored.group_idx", "the group"),
        (f"{EVENTS}:BlockStored.parent_block_hash", "the hash of their parent"),
        (f"{EVENTS}:BlockStored.token_ids", "their tokens"),
        *alike(f"{UTILS}:*", "the reported hash", "BlockHash", "maybe_convert_block_hash"),
    ),
)

ENTRIES = (*GROUPS, *ENVIRONMENT, *STEPS)
