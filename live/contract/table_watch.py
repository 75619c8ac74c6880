"""The contract: the symbols that are needed to watch a running engine.

They are looked up on the engine itself (see `watch.watching`). What a class sets in its
constructor is looked up in its code."""

from kvproof.live.contract import table_core, table_features, table_kit, table_transfers
from kvproof.live.contract.entry import alike, entries, shared
from kvproof.live.contract.table_core import CONFIG, OUTPUTS, REQUEST, UTILS

OUTPUT = "vllm.v1.core.sched.output"

SHARED = shared(
    "watching",
    (*table_core.ENTRIES, *table_features.ENTRIES, *table_transfers.ENTRIES, *table_kit.ENTRIES),
    *("Scheduler.requests", "Scheduler.running", "Scheduler.connector", "Scheduler.vllm_config"),
    *("Scheduler.kv_cache_manager", "Scheduler.kv_cache_config"),
    *("Scheduler.finished_recving_kv_req_ids", "Scheduler.failed_recving_kv_req_ids"),
    *("Scheduler.add_request", "Scheduler.schedule", "Scheduler.update_from_output"),
    *("Scheduler.finish_requests", "Scheduler.reset_prefix_cache", "Scheduler._preempt_request"),
    *("Scheduler._update_waiting_for_remote_kv", "RequestStatus.RUNNING"),
    *("KVCacheManager.block_pool", "KVCacheManager.coordinator", "KVCacheManager.evict_blocks"),
    *("KVCacheManager.allocate_slots", "KVCacheManager.allocate_slots(num_new_tokens)"),
    "KVCacheManager.allocate_slots(num_new_computed_tokens)",
    "KVCacheManager.allocate_slots(num_external_computed_tokens)",
    "KVCacheCoordinator.get_num_blocks_to_allocate",
    "KVCacheCoordinator.single_type_managers",
    "SingleTypeKVCacheManager.req_to_blocks",
    "SingleTypeKVCacheManager.num_cached_block",
    *("BlockPool.blocks", "BlockPool.null_block", "BlockPool.get_num_free_blocks"),
    *("BlockPool.cached_block_hash_to_block", "KVCacheBlock.block_id", "KVCacheBlock.ref_cnt"),
    *("KVCacheBlock.block_hash", "KVCacheBlock.is_null", "KVCacheBlock.next_free_block"),
    *("get_block_hash", "get_group_id", "maybe_convert_block_hash"),
    "VllmConfig.compilation_config",
)

EVENTS = entries(
    "watching",
    ("KVCacheManager.cache_blocks", "blocks are cached"),
    ("KVCacheManager.free", "the blocks of a request are freed"),
    ("KVCacheManager.reset_prefix_cache", "the cache is reset"),
    ("KVCacheManager.take_events", "KV events are taken"),
    ("vllm.v1.engine.core:EngineCore.shutdown", "an engine ends"),
    ("BlockPool.get_new_blocks", "blocks are taken"),
    ("BlockPool.free_blocks", "blocks are freed"),
    ("BlockPool.touch", "cached blocks are hit"),
    ("BlockHashToBlockMap.insert", "a block is cached"),
    ("BlockHashToBlockMap.pop", "a cache entry is lost"),
)

STATE = entries(
    "watching",
    ("Scheduler.finished_req_ids", "whether an engine is idle"),
    ("Scheduler.max_num_scheduled_tokens", "the token budget of a step"),
    ("Scheduler.max_num_running_reqs", "the maximum number of running requests"),
    ("Scheduler.num_spec_tokens", "the number of drafts"),
    (f"{CONFIG}:VllmConfig.kv_transfer_config", "whether a connector fills blocks"),
    (f"{CONFIG}:VllmConfig.parallel_config", "whether a warm-up writes to the null block"),
    ("KVCacheManager.enable_caching", "whether prefixes are cached"),
    ("SingleTypeKVCacheManager.block_size", "the size of blocks"),
    *alike("BlockHashToBlockMap.*", "the prefix cache", "get_one_block", "__len__"),
    ("KVCacheBlock.prev_free_block", "the free queue"),
    (f"{UTILS}:make_block_hash_with_group_id", "the key of a cached block"),
)

RECORDS = entries(
    "watching",
    *alike(
        f"{REQUEST}:Request~*",
        "a request",
        *("request_id", "status", "all_token_ids", "num_prompt_tokens", "num_computed_tokens"),
        *("max_tokens", "block_hashes", "lora_request", "cache_salt", "num_output_placeholders"),
        *("priority", "arrival_time"),
    ),
    *(
        (f"{REQUEST}:Request.{name}", "a request")
        for name in ("num_tokens", "num_output_tokens", "has_encoder_inputs", "is_finished")
    ),
    *alike(
        f"{OUTPUT}:SchedulerOutput.*",
        "a step",
        *("num_scheduled_tokens", "scheduled_spec_decode_tokens", "scheduled_new_reqs"),
        *("scheduled_cached_reqs", "finished_req_ids", "preempted_req_ids"),
    ),
    *alike(f"{OUTPUT}:*.num_computed_tokens", "a step", "NewRequestData", "CachedRequestData"),
    *alike(f"{OUTPUT}:NewRequestData.*", "a step", "req_id", "block_ids"),
    *(
        (f"{OUTPUT}:CachedRequestData.{name}", "a step")
        for name in ("req_ids", "resumed_req_ids", "new_block_ids")
    ),
    (f"{OUTPUTS}:ModelRunnerOutput.kv_connector_output", "the reports of a connector"),
    (f"{OUTPUTS}:ModelRunnerOutput.req_id_to_index", "the requests of a step's output"),
    (f"{OUTPUTS}:ModelRunnerOutput.sampled_token_ids", "how many tokens a step has sampled"),
)

ENTRIES = (*SHARED, *STATE, *EVENTS, *RECORDS)
