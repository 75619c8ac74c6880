"""The contract: the symbols that an engine core needs, beside those of its scheduler; that its
start-up needs; and that its loop needs, beside those of the NIXL connector."""

from kvproof.live.contract.entry import entries
from kvproof.live.contract.table_core import OUTPUTS, SPECS, UTILS

CORE = "vllm.v1.engine.core"
ENGINE = "vllm.v1.engine"
STRUCTURED = "vllm.v1.structured_output"

LOOP = entries(
    "engine loop",
    (f"{CORE}:EngineCoreProc.run_busy_loop", "the loop itself"),
    (f"{CORE}:EngineCoreProc~input_queue", "the messages to an engine"),
    (f"{CORE}:EngineCoreProc~shutdown_state", "an engine that is to end"),
    (
        f"{CORE}:EngineCoreProc.pause_generation | {CORE}:EngineCore.pause_scheduler",
        "a client pauses an engine",
    ),
    (f"{CORE}:EngineCore.resume_scheduler", "a client ends a pause"),
    (f"{CORE}:EngineCore.sleep", "a client sends an engine to sleep"),
    (f"{CORE}:EngineCore.wake_up", "a client wakes an engine"),
    (f"{CORE}:EngineCore.reset_prefix_cache", "a client resets the cache"),
    (f"{ENGINE}.core_client:MPClient", "the front of an engine that is ready"),
    (f"{ENGINE}:EngineCoreOutputs", "what a front gets"),
    (f"{ENGINE}.output_processor:OutputProcessor", "a front without requests"),
    ("vllm.v1.metrics.loggers:PrometheusStatLogger", "what an operator reads of an engine"),
    (f"{ENGINE}:EngineCoreRequestType", "the kinds of messages"),
    (
        f"{STRUCTURED}:StructuredOutputManager.grammar_init",
        "a request asks for structured output",
    ),
    (
        "vllm.v1.structured_output.backend_types:StructuredOutputGrammar",
        "a grammar without a tokenizer",
    ),
    (
        f"{STRUCTURED}:StructuredOutputManager~reasoner_cls | "
        f"{STRUCTURED}:StructuredOutputManager~reasoner",
        "the parser of reasoning",
    ),
    ("vllm.sampling_params:StructuredOutputsParams", "a request asks for structured output"),
    (
        "vllm.multimodal.cache:LruKeyReplicatedReceiverCache | "
        "vllm.multimodal.cache:MultiModalReceiverCache",
        "an engine that has forgotten an image",
    ),
    (
        "vllm.distributed.kv_transfer.kv_connector.v1.metrics:KVConnectorStats",
        "what a connector counts",
    ),
    (f"{OUTPUTS}:KVConnectorOutput(kv_connector_stats)", "what the workers count"),
    (
        "vllm.v1.metrics.stats:SchedulerStats(kv_connector_stats)",
        "what a user receives of the numbers of connectors",
    ),
    (f"{ENGINE}.llm_engine:LLMEngine", "the front that passes statistics on"),
    (f"{ENGINE}.async_llm:AsyncLLM", "the front that passes statistics on"),
    ("EngineCoreOutputs.utility_output", "the answer to a call"),
    ("EngineCoreOutput.new_token_ids", "the tokens of an answer"),
    ("EngineCoreOutput.finish_reason", "the end of an answer"),
)


ENGINE_CORE = entries(
    "engine core",
    (f"{CORE}:EngineCore._initialize_kv_caches", "the start-up itself"),
    (f"{CORE}:EngineCoreProc._perform_handshakes", "an engine without a network"),
    (f"{CORE}:EngineCoreProc~threading", "the threads that an engine starts"),
    (f"{ENGINE}.utils:EngineZmqAddresses", "an engine without a network"),
    (f"{CORE}:EngineCore~step_fn", "a step of the engine"),
    (f"{CORE}:EngineCore.post_step", "what a drafter predicts after a step"),
    (f"{CORE}:EngineCore~batch_queue", "the steps in flight"),
    (f"{CORE}:EngineCore~aborts_queue", "clients that are gone"),
    (f"{CORE}:EngineCore.add_request", "a request comes"),
    (f"{CORE}:EngineCore.abort_requests", "clients that are gone"),
)


START_UP = entries(
    "start-up",
    (f"{CORE}:EngineCoreProc~output_queue", "the answers of an engine"),
    (f"{CORE}:EngineCoreProc.process_input_sockets", "the thread that reads messages"),
    (f"{CORE}:EngineCoreProc.process_output_sockets", "the thread that sends answers"),
    (f"{CORE}:EngineCoreProc~zmq", "sockets without a network"),
    (f"{CORE}:EngineCoreProc~make_zmq_socket", "sockets without a network"),
    (f"{CORE}:EngineCoreProc~MsgpackEncoder", "a client sends a message"),
    (f"{CORE}:EngineCoreProc~MsgpackDecoder", "a client receives an answer"),
    (f"{CORE}:EngineCore.preprocess_add_request", "a request comes"),
    (f"{CORE}:EngineCoreProc._process_engine_step", "a step without the loop"),
    (f"{ENGINE}:EngineCoreRequest", "a request comes"),
    (f"{SPECS}:MLAAttentionSpec", "layers with latent attention"),
    (f"{SPECS}:ChunkedLocalAttentionSpec", "layers with chunked local attention"),
    (f"{SPECS}:SinkFullAttentionSpec", "layers whose attention also reads sinks"),
    (
        f"{UTILS}:resolve_kv_cache_block_sizes | !{SPECS}:SlidingWindowMLASpec",
        "the block sizes of the scheduler; older releases have one for all groups",
    ),
)

POOLING = entries(
    "pooling",
    ("vllm.pooling_params:PoolingParams(task)", "what a request wants of a model that pools"),
    (f"{OUTPUTS}:ModelRunnerOutput(pooler_output)", "the vectors of a step"),
    (f"{ENGINE}:EngineCoreOutput.pooling_output", "the vector of a request"),
    (f"{CORE}:EngineCore~is_pooling_model", "a model that pools"),
)

ENTRIES = (*ENGINE_CORE, *START_UP, *LOOP, *POOLING)
