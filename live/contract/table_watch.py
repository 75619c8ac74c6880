"""The contract: the symbols that are needed to watch a running engine.

They are looked up on the engine itself (see `watch.watching`). What a class sets in its
constructor is looked up in its code."""

from kvproof.live.contract.entry import alike, entries
from kvproof.live.contract.table_core import CONFIG, OUTPUTS, REQUEST, UTILS

OUTPUT = "vllm.v1.core.sched.output"

EVENTS = entries(
    "watching",
    ("Scheduler.add_request", "a request arrives"),
    ("Scheduler.schedule", "a step is scheduled"),
    ("Scheduler.update_from_output", "the output of a step arrives"),
    ("Scheduler.finish_requests", "a request is aborted"),
    ("Scheduler.reset_prefix_cache", "the cache is reset"),
    ("Scheduler._preempt_request", "a request is preempted"),
    ("Scheduler._update_waiting_for_remote_kv", "a load has ended"),
    ("KVCacheManager.allocate_slots", "a request takes blocks"),
    ("KVCacheManager.allocate_slots(num_new_tokens)", "an admission"),
    ("KVCacheManager.allocate_slots(num_new_computed_tokens)", "its hit"),
    ("KVCacheManager.allocate_slots(num_external_computed_tokens)", "its load"),
    ("KVCacheManager.cache_blocks", "blocks are cached"),
    ("KVCacheManager.free", "the blocks of a request are freed"),
    ("KVCacheManager.evict_blocks", "a block is evicted"),
    ("KVCacheManager.reset_prefix_cache", "the cache is reset"),
    ("KVCacheManager.take_events", "KV events are taken"),
    ("KVCacheCoordinator.get_num_blocks_to_allocate", "a prediction"),
    ("vllm.v1.engine.core:EngineCore.shutdown", "an engine ends"),
    ("BlockPool.get_new_blocks", "blocks are taken"),
    ("BlockPool.free_blocks", "blocks are freed"),
    ("BlockPool.touch", "cached blocks are hit"),
    ("BlockHashToBlockMap.insert", "a block is cached"),
    ("BlockHashToBlockMap.pop", "a cache entry is lost"),
)

STATE = entries(
    "watching",
    *(
        (f"Scheduler.{name}", what)
        for name, what in (
            ("requests", "the requests of an engine"),
            ("running", "the running requests"),
            ("finished_req_ids", "whether an engine is idle"),
            ("connector", "the connector of an engine"),
            ("kv_cache_manager", "the pool and the groups"),
            ("kv_cache_config", "the groups"),
            ("vllm_config", "the options of an engine"),
            ("max_num_scheduled_tokens", "the token budget of a step"),
            ("max_num_running_reqs", "the maximum number of running requests"),
            ("num_spec_tokens", "the number of drafts"),
            ("finished_recving_kv_req_ids", "loads that have ended"),
            ("failed_recving_kv_req_ids", "loads that have failed"),
        )
    ),
    (f"{CONFIG}:VllmConfig.kv_transfer_config", "whether a connector fills blocks"),
    ("KVCacheManager.enable_caching", "whether prefixes are cached"),
    ("KVCacheManager.block_pool", "the pool"),
    ("KVCacheManager.coordinator", "the groups"),
    ("KVCacheCoordinator.single_type_managers", "the groups"),
    ("SingleTypeKVCacheManager.req_to_blocks", "the block tables"),
    ("SingleTypeKVCacheManager.num_cached_block", "the number of cached blocks"),
    ("SingleTypeKVCacheManager.block_size", "the size of blocks"),
    ("BlockPool.blocks", "the blocks"),
    ("BlockPool.null_block", "the null block"),
    ("BlockPool.get_num_free_blocks", "the number of free blocks"),
    ("BlockPool.cached_block_hash_to_block", "the prefix cache"),
    *alike("BlockHashToBlockMap.*", "the prefix cache", "get_one_block", "__len__"),
    *alike(
        "KVCacheBlock.*",
        "a block",
        *("block_id", "ref_cnt", "block_hash", "is_null", "prev_free_block", "next_free_block"),
    ),
    (f"{UTILS}:get_block_hash", "the key of a cached block"),
    (f"{UTILS}:get_group_id", "the key of a cached block"),
    (f"{UTILS}:make_block_hash_with_group_id", "the key of a cached block"),
    (f"{UTILS}:maybe_convert_block_hash", "the hashes of KV events"),
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
    (f"{REQUEST}:RequestStatus.RUNNING", "the status of a request"),
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

BYTES = entries(
    "watching",
    (f"{CONFIG}:VllmConfig.compilation_config", "the layers with their memory"),
    (f"{CONFIG}:VllmConfig.parallel_config", "whether a warm-up writes to the null block"),
)

ENTRIES = (*STATE, *EVENTS, *RECORDS, *BYTES)
