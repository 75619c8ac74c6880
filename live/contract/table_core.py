"""The contract: the symbols that one engine with full attention needs."""

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
    (f"{CONFIG}:ModelConfig(max_model_len)", "the maximum length of a request"),
    (f"{CONFIG}:SchedulerConfig", "the config of an engine"),
    (f"{CONFIG}:SchedulerConfig(max_num_seqs)", "the maximum number of running requests"),
    (f"{CONFIG}:SchedulerConfig(max_num_batched_tokens)", "the token budget of a step"),
    (f"{CONFIG}:SchedulerConfig(policy)", "the order of requests"),
    (f"{CONFIG}:SchedulerConfig(max_model_len)", "the maximum length of a request"),
    (f"{CONFIG}:SchedulerConfig(enable_chunked_prefill)", "prompts are computed in chunks"),
    (f"{CONFIG}:SchedulerConfig(is_encoder_decoder)", "the config of an engine"),
    (f"{CONFIG}:SchedulerConfig(disable_hybrid_kv_cache_manager)", "groups of several kinds"),
    (f"{CONFIG}:SchedulerConfig(async_scheduling)", "whether steps overlap"),
    (f"{CONFIG}:SchedulerConfig.max_num_scheduled_tokens", "the token budget of a step"),
    (f"{CONFIG}:SchedulerConfig.get_scheduler_cls", "the scheduler class of an engine"),
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
    (f"{CONFIG}:VllmConfig.validate_block_size", "the config check of an engine"),
    (f"{SPECS}:KVCacheConfig", "the groups and the pool"),
    (f"{SPECS}:KVCacheConfig(num_blocks)", "the size of the pool"),
    (f"{SPECS}:KVCacheConfig(kv_cache_tensors)", "an empty list"),
    (f"{SPECS}:KVCacheConfig(kv_cache_groups)", "the groups"),
    (f"{SPECS}:KVCacheGroupSpec", "a group"),
    (f"{SPECS}:FullAttentionSpec", "a group of full attention"),
    (f"{SPECS}:FullAttentionSpec(block_size)", "the size of its blocks"),
    (f"{SPECS}:FullAttentionSpec(num_kv_heads)", "the shape of a block"),
    (f"{SPECS}:FullAttentionSpec(head_size)", "the shape of a block"),
    (f"{SPECS}:FullAttentionSpec(dtype)", "the shape of a block"),
    ("vllm.v1.structured_output:StructuredOutputManager", "a scheduler is built with one"),
    (f"{SCHEDULER}:Scheduler", "the driven scheduler"),
    (f"{SCHEDULER}:Scheduler(vllm_config)", "the scheduler is built"),
    (f"{SCHEDULER}:Scheduler(kv_cache_config)", "the scheduler is built"),
    (f"{SCHEDULER}:Scheduler(structured_output_manager)", "the scheduler is built"),
    (f"{SCHEDULER}:Scheduler(block_size)", "the scheduler is built"),
    (
        f"{SCHEDULER}:Scheduler(hash_block_size)"
        f" | !{MANAGERS}:SingleTypeKVCacheManager.get_num_blocks_to_allocate(apply_admission_cap)",
        "tokens of a block hash; in older releases always the block size",
    ),
    (f"{SCHEDULER}:Scheduler(log_stats)", "the scheduler is built"),
)

REQUESTS = entries(
    "core",
    ("vllm.sampling_params:SamplingParams", "the sampling parameters of a request"),
    ("vllm.sampling_params:SamplingParams(max_tokens)", "the length of its answer"),
    ("vllm.sampling_params:SamplingParams(ignore_eos)", "no answer ends early"),
    ("vllm.sampling_params:SamplingParams(extra_args)", "the parameters from a router"),
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
    ("Request.request_id", "the id of a request"),
    ("Request.block_hashes", "the hashes of prefixes"),
    ("Request.status", "the status of a request"),
    ("Request.num_prompt_tokens", "the length of its prompt"),
    ("Request.output_token_ids", "its answer"),
    ("Request.max_tokens", "the length of its answer"),
    ("Request.num_computed_tokens", "its computed tokens"),
    ("Request.num_preemptions", "its number of preemptions"),
    ("Request.num_output_placeholders", "outputs that are pending"),
    (f"{REQUEST}:RequestStatus", "the status of a request"),
    *(
        (f"{REQUEST}:RequestStatus.{name}", "the status of a request")
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
    ("Scheduler.shutdown", "the scheduler is closed"),
    ("Scheduler._preempt_request", "a preemption is recorded"),
    ("Scheduler._update_waiting_for_remote_kv", "the end of a load is recorded"),
    ("Scheduler.requests", "the requests of an engine"),
    ("Scheduler.running", "the running requests"),
    ("vllm.v1.core.sched.request_queue:RequestQueue", "the queues of waiting requests"),
    ("Scheduler.kv_cache_manager", "the pool and the groups"),
    ("KVCacheManager.allocate_slots", "an admission and its blocks are recorded"),
    ("KVCacheManager.allocate_slots(num_new_tokens)", "an admission is recorded"),
    ("KVCacheManager.allocate_slots(num_new_computed_tokens)", "its hit is recorded"),
    ("KVCacheManager.allocate_slots(num_external_computed_tokens)", "its load is recorded"),
    ("KVCacheManager.get_block_ids", "the blocks of a request"),
    ("KVCacheManager.coordinator", "the groups"),
    ("KVCacheManager.block_pool", "the pool"),
    ("KVCacheCoordinator.get_num_blocks_to_allocate", "a prediction is recorded"),
    (
        "KVCacheCoordinator.get_num_blocks_to_allocate(apply_admission_cap)"
        f" | !{SCHEDULER}:Scheduler(hash_block_size) | !{SPECS}:KVCacheSpecKind",
        "which prediction is used, if a release makes two",
    ),
    ("KVCacheCoordinator.single_type_managers", "the groups"),
    ("SingleTypeKVCacheManager.req_to_blocks", "the block tables"),
    ("SingleTypeKVCacheManager.num_cached_block", "the number of cached blocks"),
    ("BlockPool.blocks", "the blocks"),
    ("BlockPool.get_num_free_blocks", "the number of free blocks"),
    ("BlockPool.free_block_queue", "the free queue"),
    ("BlockPool.cached_block_hash_to_block", "the prefix cache"),
    ("BlockHashToBlockMap._cache", "the prefix cache"),
    ("FreeKVCacheBlockQueue.fake_free_list_head", "the free queue"),
    ("KVCacheBlock.next_free_block", "the free queue"),
    ("KVCacheBlock.block_id", "the id of a block"),
    ("KVCacheBlock.ref_cnt", "its reference count"),
    ("KVCacheBlock.block_hash", "its cached prefix"),
    ("KVCacheBlock.is_null", "whether it is the null block"),
    (f"{UTILS}:KVCacheBlock", "a block"),
    (f"{UTILS}:get_block_hash", "the key of a cached block"),
    (f"{UTILS}:get_group_id", "the key of a cached block"),
    (f"{UTILS}:BlockHashListWithBlockSize", "hashes for another block size"),
)

WORKER = entries(
    "core",
    ("vllm.v1.core.sched.output:SchedulerOutput", "a step"),
    ("vllm.v1.core.sched.output:SchedulerOutput.make_empty", "a step that computes nothing"),
    *(
        (f"SchedulerOutput.{name}", "a step, as the worker receives it")
        for name in (
            *("scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens"),
            *("finished_req_ids", "preempted_req_ids"),
        )
    ),
    *(
        (f"NewRequestData.{name}", "a new request, as the worker receives it")
        for name in (
            *("req_id", "prompt_token_ids", "prompt_embeds", "prefill_token_ids"),
            *("block_ids", "num_computed_tokens"),
        )
    ),
    *(
        (f"CachedRequestData.{name}", "a known request, as the worker receives it")
        for name in (
            *("req_ids", "resumed_req_ids", "new_block_ids", "num_computed_tokens"),
            "num_output_tokens",
        )
    ),
    (f"{OUTPUTS}:ModelRunnerOutput", "the output of a step"),
    (f"{OUTPUTS}:ModelRunnerOutput(req_ids)", "the output of a step"),
    (f"{OUTPUTS}:ModelRunnerOutput(req_id_to_index)", "the output of a step"),
    (f"{OUTPUTS}:ModelRunnerOutput(sampled_token_ids)", "the output of a step"),
    ("EngineCoreOutputs.outputs", "the answer of an engine"),
    ("EngineCoreOutput.request_id", "the answer of an engine"),
    ("EngineCoreOutput.kv_transfer_params", "the transfer parameters from P to D"),
)

ENTRIES = (*CONFIGURED, *REQUESTS, *STEPS, *WORKER)
