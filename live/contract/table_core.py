"""The contract: what one engine with full attention needs."""

from kvproof.live.contract.entry import entries

UTILS = "vllm.v1.core.kv_cache_utils"
SCHEDULER = "vllm.v1.core.sched.scheduler"
SPECS = "vllm.v1.kv_cache_interface"
CONFIG = "vllm.config"
REQUEST = "vllm.v1.request"
OUTPUTS = "vllm.v1.outputs"
MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"

CONFIGURED = entries(
    "core",
    (f"{CONFIG}:ModelConfig", "the config of an engine"),
    (f"{CONFIG}:ModelConfig(model)", "a folder with a config and no weights"),
    (f"{CONFIG}:ModelConfig(tokenizer)", "the same folder"),
    (f"{CONFIG}:ModelConfig(skip_tokenizer_init)", "no tokenizer is loaded"),
    (f"{CONFIG}:ModelConfig(dtype)", "the config of an engine"),
    (f"{CONFIG}:ModelConfig(seed)", "the config of an engine"),
    (f"{CONFIG}:ModelConfig(max_model_len)", "how long a request may be"),
    (f"{CONFIG}:SchedulerConfig", "the config of an engine"),
    (f"{CONFIG}:SchedulerConfig(max_num_seqs)", "requests that run at a time"),
    (f"{CONFIG}:SchedulerConfig(max_num_batched_tokens)", "tokens of a step"),
    (f"{CONFIG}:SchedulerConfig(policy)", "who is served first"),
    (f"{CONFIG}:SchedulerConfig(max_model_len)", "how long a request may be"),
    (f"{CONFIG}:SchedulerConfig(enable_chunked_prefill)", "prompts are computed in chunks"),
    (f"{CONFIG}:SchedulerConfig(is_encoder_decoder)", "the config of an engine"),
    (f"{CONFIG}:SchedulerConfig(disable_hybrid_kv_cache_manager)", "groups of several kinds"),
    (f"{CONFIG}:SchedulerConfig(async_scheduling)", "whether steps overlap"),
    (f"{CONFIG}:SchedulerConfig.max_num_scheduled_tokens", "tokens of a step"),
    (f"{CONFIG}:SchedulerConfig.get_scheduler_cls", "the scheduler that an engine takes"),
    (f"{CONFIG}:CacheConfig", "the config of an engine"),
    (f"{CONFIG}:CacheConfig(block_size)", "the size of blocks"),
    (f"{CONFIG}:CacheConfig(enable_prefix_caching)", "whether prefixes are cached"),
    (f"{CONFIG}:CacheConfig.num_gpu_blocks", "the size of the pool"),
    (f"{CONFIG}:DeviceConfig", "the engine is on CPU"),
    (f"{CONFIG}:VllmConfig", "the config of an engine"),
    (f"{CONFIG}:VllmConfig(model_config)", "a part of the config"),
    (f"{CONFIG}:VllmConfig(scheduler_config)", "a part of the config"),
    (f"{CONFIG}:VllmConfig(cache_config)", "a part of the config"),
    (f"{CONFIG}:VllmConfig(device_config)", "a part of the config"),
    (f"{CONFIG}:VllmConfig.validate_block_size", "the check an engine makes of its config"),
    (f"{SPECS}:KVCacheConfig", "the groups and the pool"),
    (f"{SPECS}:KVCacheConfig(num_blocks)", "the size of the pool"),
    (f"{SPECS}:KVCacheConfig(kv_cache_tensors)", "there are none"),
    (f"{SPECS}:KVCacheConfig(kv_cache_groups)", "the groups"),
    (f"{SPECS}:KVCacheGroupSpec", "a group"),
    (f"{SPECS}:FullAttentionSpec", "a group of full attention"),
    (f"{SPECS}:FullAttentionSpec(block_size)", "the size of its blocks"),
    (f"{SPECS}:FullAttentionSpec(num_kv_heads)", "the shape of a block"),
    (f"{SPECS}:FullAttentionSpec(head_size)", "the shape of a block"),
    (f"{SPECS}:FullAttentionSpec(dtype)", "the shape of a block"),
    ("vllm.v1.structured_output:StructuredOutputManager", "a scheduler is built with one"),
    (f"{SCHEDULER}:Scheduler", "what is driven"),
    (f"{SCHEDULER}:Scheduler(vllm_config)", "it is built"),
    (f"{SCHEDULER}:Scheduler(kv_cache_config)", "it is built"),
    (f"{SCHEDULER}:Scheduler(structured_output_manager)", "it is built"),
    (f"{SCHEDULER}:Scheduler(block_size)", "it is built"),
    (
        f"{SCHEDULER}:Scheduler(hash_block_size)"
        f" | !{MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate(apply_admission_cap)",
        "tokens of a block hash, which older releases take for those of a block",
    ),
    (f"{SCHEDULER}:Scheduler(log_stats)", "it is built"),
)

REQUESTS = entries(
    "core",
    ("vllm.sampling_params:SamplingParams", "what a request asks for"),
    ("vllm.sampling_params:SamplingParams(max_tokens)", "the length of its answer"),
    ("vllm.sampling_params:SamplingParams(ignore_eos)", "no answer ends early"),
    ("vllm.sampling_params:SamplingParams(extra_args)", "what a router tells"),
    ("vllm.utils.hashing:sha256", "hashes of blocks"),
    (f"{UTILS}:init_none_hash", "hashes of blocks"),
    (f"{UTILS}:get_request_block_hasher", "hashes of blocks"),
    (f"{REQUEST}:Request", "a request"),
    *(
        (f"{REQUEST}:Request({name})", "a request arrives")
        for name in (
            *("request_id", "prompt_token_ids", "sampling_params", "pooling_params"),
            *("arrival_time", "block_hasher"),
        )
    ),
    ("Request.request_id", "its name"),
    ("Request.block_hashes", "the names of prefixes"),
    ("Request.status", "its status"),
    ("Request.num_prompt_tokens", "how long its prompt is"),
    ("Request.output_token_ids", "its answer"),
    ("Request.max_tokens", "the length of its answer"),
    ("Request.num_computed_tokens", "how far it has come"),
    ("Request.num_preemptions", "whether it was preempted"),
    ("Request.num_output_placeholders", "outputs that are still to come"),
    (f"{REQUEST}:RequestStatus", "its status"),
    *(
        (f"{REQUEST}:RequestStatus.{name}", "its status")
        for name in (
            *("WAITING", "RUNNING", "PREEMPTED", "WAITING_FOR_REMOTE_KVS", "is_finished"),
            *("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED"),
        )
    ),
)

STEPS = entries(
    "core",
    ("Scheduler.add_request", "a request arrives"),
    ("Scheduler.schedule", "a step is scheduled"),
    ("Scheduler.update_from_output", "the output of a step arrives"),
    ("Scheduler.shutdown", "it is closed"),
    ("Scheduler._preempt_request", "a preemption is noted"),
    ("Scheduler._update_waiting_for_remote_kv", "the end of a load is noted"),
    ("Scheduler.requests", "the requests of an engine"),
    ("Scheduler.running", "the requests that run"),
    ("vllm.v1.core.sched.request_queue:RequestQueue", "the queues of requests that wait"),
    ("Scheduler.kv_cache_manager", "the pool and the groups"),
    ("KVCacheManager.allocate_slots", "an admission and its blocks are noted"),
    ("KVCacheManager.allocate_slots(num_new_tokens)", "an admission is noted"),
    ("KVCacheManager.allocate_slots(num_new_computed_tokens)", "its hit is noted"),
    ("KVCacheManager.allocate_slots(num_external_computed_tokens)", "its load is noted"),
    ("KVCacheManager.get_block_ids", "the blocks a request holds"),
    ("KVCacheManager.coordinator", "the groups"),
    ("KVCacheManager.block_pool", "the pool"),
    ("KVCacheCoordinator.get_num_blocks_to_allocate", "a prediction is noted"),
    (
        "KVCacheCoordinator.get_num_blocks_to_allocate(apply_admission_cap)"
        f" | !{SCHEDULER}:Scheduler(hash_block_size)",
        "which prediction counts, where a release makes two",
    ),
    ("KVCacheCoordinator.single_type_managers", "the groups"),
    ("SingleTypeKVCacheManager.req_to_blocks", "the block tables"),
    ("SingleTypeKVCacheManager.num_cached_block", "how many blocks are cached"),
    ("BlockPool.blocks", "the blocks"),
    ("BlockPool.get_num_free_blocks", "the room there is"),
    ("BlockPool.free_block_queue", "the free queue"),
    ("BlockPool.cached_block_hash_to_block", "the prefix cache"),
    ("BlockHashToBlockMap._cache", "the prefix cache"),
    ("FreeKVCacheBlockQueue.get_all_free_blocks", "the free queue"),
    ("KVCacheBlock.block_id", "which block it is"),
    ("KVCacheBlock.ref_cnt", "who holds it"),
    ("KVCacheBlock.block_hash", "what is cached in it"),
    ("KVCacheBlock.is_null", "whether it is the null block"),
    (f"{UTILS}:KVCacheBlock", "a block"),
    (f"{UTILS}:get_block_hash", "the key of a cached block"),
    (f"{UTILS}:get_group_id", "the key of a cached block"),
    (
        f"{UTILS}:resolve_block_hashes | {UTILS}:BlockHashListWithBlockSize",
        "hashes of blocks of another size",
    ),
)

WORKER = entries(
    "core",
    ("vllm.v1.core.sched.output:SchedulerOutput", "a step"),
    ("vllm.v1.core.sched.output:SchedulerOutput.make_empty", "a step that computes nothing"),
    *(
        (f"SchedulerOutput.{name}", "what the worker is told of a step")
        for name in (
            *("scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens"),
            *("finished_req_ids", "preempted_req_ids"),
        )
    ),
    *(
        (f"NewRequestData.{name}", "what the worker is told of a new request")
        for name in (
            *("req_id", "prompt_token_ids", "prompt_embeds", "prefill_token_ids"),
            *("block_ids", "num_computed_tokens"),
        )
    ),
    *(
        (f"CachedRequestData.{name}", "what the worker is told of a request that it knows")
        for name in (
            *("req_ids", "resumed_req_ids", "new_block_ids", "num_computed_tokens"),
            "num_output_tokens",
        )
    ),
    (f"{OUTPUTS}:ModelRunnerOutput", "the output of a step"),
    (f"{OUTPUTS}:ModelRunnerOutput(req_ids)", "the output of a step"),
    (f"{OUTPUTS}:ModelRunnerOutput(req_id_to_index)", "the output of a step"),
    (f"{OUTPUTS}:ModelRunnerOutput(sampled_token_ids)", "the output of a step"),
    ("EngineCoreOutputs.outputs", "what an engine answers"),
    ("EngineCoreOutput.request_id", "what an engine answers"),
    ("EngineCoreOutput.kv_transfer_params", "what P leaves to D"),
)

ENTRIES = (*CONFIGURED, *REQUESTS, *STEPS, *WORKER)
