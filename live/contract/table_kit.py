"""The contract: the symbols that the connector kit needs, beside those of one engine."""

from kvproof.live.contract.entry import alike, entries
from kvproof.live.contract.table_core import CONFIG, OUTPUTS, REQUEST, SPECS
from kvproof.live.contract.table_transfers import BASE

TRANSFER = "vllm.distributed.kv_transfer"
FACTORY = f"{TRANSFER}.kv_connector.factory"
ENCODER = "vllm.distributed.ec_transfer"
MIXIN = "vllm.v1.worker.kv_connector_model_runner_mixin:KVConnectorModelRunnerMixin"
RUNNER = "vllm.v1.worker.ec_connector_model_runner_mixin:ECConnectorModelRunnerMixin"
CALLS = "vllm.v1.worker.gpu.kv_connector:ActiveKVConnector"
PAUSE = "vllm.v1.core.sched.interface:PauseState"
PLANNED = "get_kv_cache_config_from_groups"
OLDER = f"!{OUTPUTS}:KVConnectorOutput(failed_recving)"
"""The place by which a release before 0.32 is recognised."""

ENTRIES = entries(
    "connector kit",
    (f"{FACTORY}:KVConnectorFactory", "the connector under test"),
    *(
        (f"{FACTORY}:KVConnectorFactory.{name}", "the connector under test")
        for name in ("create_connector", "get_connector_class", "get_connector_class_by_name")
    ),
    (f"{CONFIG}:VllmConfig~model_config", "the heads of the model"),
    (f"{CONFIG}:VllmConfig~speculative_config", "whether the first model runner drafts"),
    (f"{CONFIG}:ModelConfig.get_total_num_kv_heads", "the heads of the model"),
    ("BlockPool.null_block", "the blocks that windows have given up"),
    (
        f"{FACTORY}:KVConnectorFactory.supports_hma_config | {FACTORY}:supports_hma",
        "whether it supports several cache groups",
    ),
    (f"{BASE}:KVConnectorBase_V1", "its base class"),
    *alike(
        f"{BASE}:KVConnectorBase_V1.*",
        "the kit listens to it, or calls it",
        *("get_required_kvcache_layout", "get_num_new_matched_tokens", "update_state_after_alloc"),
        *("request_finished", "reset_cache", "shutdown", "wait_for_layer_load", "save_kv_layer"),
        *("set_host_xfer_buffer_ops", "handle_preemptions"),
    ),
    (
        f"{BASE}:KVConnectorBase_V1.register_cross_layers_kv_cache | "
        f"{BASE}:KVConnectorBase_V1.register_kv_caches",
        "the KV caches of a worker; some releases register all layers in a block",
    ),
    (
        f"{BASE}:KVConnectorBase_V1.set_xfer_handshake_metadata_pp_aware | "
        f"{BASE}:KVConnectorBase_V1.set_xfer_handshake_metadata",
        "what P and D know of each other's workers",
    ),
    (f"{BASE}:KVConnectorRole.WORKER", "the side of the worker"),
    (
        f"{TRANSFER}.kv_connector.utils:KVOutputAggregator.from_connector",
        "one report of several workers",
    ),
    (f"{CONFIG}:KVTransferConfig(kv_connector_module_path)", "a class that is not registered"),
    (f"{TRANSFER}.kv_transfer_state:_KV_CONNECTOR_AGENT", "where vLLM finds the worker's side"),
    (CALLS, "the calls of a model runner"),
    *alike(f"{CALLS}.*", "the calls of a model runner", "pre_forward", "no_forward"),
    (f"{CALLS}.post_forward", "the end of a step"),
    (f"{CALLS}.finish_forward | {OLDER}", "the end of a step; older releases have one call less"),
    *alike(
        f"{MIXIN}.*",
        "the calls of the first model runner",
        *("maybe_get_kv_connector_output(defer_finalize)", "finalize_kv_connector"),
        *("kv_connector_no_forward",),
    ),
    *(
        (name, "one tensor for all layers, in older releases")
        for name in (
            "vllm.v1.worker.utils:AttentionGroup",
            f"{TRANSFER}.kv_connector.utils:copy_kv_blocks",
        )
    ),
    ("vllm.forward_context:set_forward_context", "what a connector sees of a step"),
    (
        "vllm.model_executor.layers.attention_layer_base:AttentionLayerBase",
        "the layers that a connector sees",
    ),
    (
        "vllm.model_executor.models.extract_hidden_states:CacheOnlyAttentionLayer",
        "a drafter's layer that keeps hidden states",
    ),
    ("vllm.v1.attention.backends.cpu_attn:CPUAttentionBackend", "the layers' backend"),
    (
        "vllm.v1.attention.backends.flex_attention:FlexAttentionBackend",
        "the backend where NIXL's worker does not take the first",
    ),
    (
        "vllm.v1.kv_cache_interface:UniformTypeKVCacheSpecs",
        "layers of one group that keep unequal amounts of a token",
    ),
    ("vllm.v1.core.kv_cache_utils:get_kv_cache_groups", "which groups are the drafter's"),
    (
        "vllm.v1.core.kv_cache_utils:generate_scheduler_kv_cache_config",
        "the config of a scheduler, for that of its worker",
    ),
    (f"{CONFIG}:set_current_vllm_config", "a connector's worker is made with it"),
    ("vllm.model_executor.layers.mamba.abstract:MambaBase", "the layers with states"),
    *(
        (f"vllm.multimodal.inputs:{name}", "an image in a prompt")
        for name in ("MultiModalFeatureSpec", "PlaceholderRange")
    ),
    (f"{CONFIG}:ECTransferConfig", "the settings of an encoder-cache connector"),
    (f"{CONFIG}:MultiModalConfig", "a model that takes images"),
    (f"{CONFIG}:VllmConfig.scheduler_config", "the limits of a step"),
    (f"{CONFIG}:SchedulerConfig.disable_chunked_mm_input", "whether a step may cut an image"),
    (
        "vllm.v1.outputs:make_empty_encoder_model_runner_output",
        "the output of a step of an engine that only encodes images",
    ),
    (f"{ENCODER}:ec_transfer_state", "where vLLM finds an encoder-cache connector"),
    (f"{ENCODER}.ec_connector.base:ECConnectorRole", "its two sides"),
    (f"{ENCODER}.ec_connector.factory:ECConnectorFactory", "an encoder-cache connector"),
    (RUNNER, "its calls of a model runner"),
    (f"{CONFIG}:VllmConfig.compilation_config", "where the layers are listed"),
    (f"{CONFIG}:CompilationConfig.static_forward_context", "where the layers are listed"),
    (
        f"vllm.v1.core.kv_cache_planning:{PLANNED} | vllm.v1.core.kv_cache_utils:{PLANNED}",
        "the tensors of the KV caches",
    ),
    (
        f"vllm.v1.worker.utils:allocate_kv_cache | {OLDER}",
        "the KV caches; in older releases each tensor has memory of its own",
    ),
    (
        f"{CONFIG}:CacheConfig.get_resolved_kv_cache_layout | {OLDER}",
        "the order of their dimensions; older releases know one",
    ),
    (f"{CONFIG}:CacheConfig.num_gpu_blocks_override", "the size of the pool"),
    (f"{CONFIG}:VllmConfig.cache_config", "the size of the pool"),
    ("KVCacheConfig.kv_cache_groups", "the groups"),
    ("KVCacheConfig.kv_cache_tensors", "the tensors of the KV caches"),
    ("KVCacheGroupSpec.kv_cache_spec", "the groups"),
    ("KVCacheGroupSpec.layer_names", "the layers of a group"),
    (f"{SPECS}:FullAttentionSpec.page_size_bytes", "the size of a block in bytes"),
    ("Scheduler.vllm_config", "the config of the worker"),
    ("Scheduler.kv_cache_config", "the KV caches of the worker"),
    ("Scheduler.has_requests", "whether the engine goes on"),
    ("Scheduler.set_pause_state", "an engine is paused"),
    *alike(f"{PAUSE}.*", "a pause", "PAUSED_NEW", "PAUSED_ALL", "UNPAUSED"),
    ("Scheduler.reset_prefix_cache(reset_connector)", "the connector's cache is reset"),
    ("Request.num_tokens", "the tokens of a request"),
    ("Request.sampling_params", "a request that reads no cache"),
    ("Request.skip_reading_prefix_cache", "a request that reads no cache"),
    ("vllm.sampling_params:SamplingParams.skip_reading_prefix_cache", "the same"),
    (f"{REQUEST}:Request(cache_salt)", "a request with a cache salt"),
    (f"{REQUEST}:Request(lora_request)", "a request with a LoRA adapter"),
    ("vllm.lora.request:LoRARequest", "a LoRA adapter"),
    *(
        (f"{OUTPUTS}:KVConnectorOutput.{name}", "the report of a worker")
        for name in ("finished_sending", "finished_recving", "invalid_block_ids")
    ),
)
