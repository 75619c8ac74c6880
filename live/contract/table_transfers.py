"""The contract: the symbols that KV transfers and loads from a store need."""

from kvproof.live.contract.entry import alike, entries
from kvproof.live.contract.table_core import CONFIG, OUTPUTS

CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"
BASE = f"{CONNECTORS}.base"
NIXL = f"{CONNECTORS}.nixl"
MULTI = f"{CONNECTORS}.multi_connector"
UP_TO_0_19 = f"{CONNECTORS}.nixl_connector"
RESULTS = f"{BASE}:KVConnectorTransferResults"
PUSH_WORKER = f"{NIXL}.push_worker:NixlPushConnectorWorker"

WORKERS = (
    f"{NIXL}.base_worker:NixlBaseConnectorWorker",
    f"{NIXL}.worker:NixlConnectorWorker",
    f"{UP_TO_0_19}:NixlConnectorWorker",
)
"""The places of the NIXL worker, newest release first."""


PULL_WORKERS = (f"{NIXL}.pull_worker:NixlPullConnectorWorker", *WORKERS[1:])
"""The places of the worker that reads, newest release first."""


def _any(places: tuple[str, ...], rest: str = "") -> str:
    return " | ".join(f"{where}{rest}" for where in places)


def _metadata(rest: str) -> str:
    return f"{NIXL}.metadata:{rest} | {UP_TO_0_19}:{rest}"


CONNECTOR = (
    *entries(
        "connector",
        (f"{CONFIG}:KVTransferConfig", "the config of a connector"),
        *alike(
            f"{CONFIG}:KVTransferConfig(*)",
            "the config of a connector",
            *("kv_connector", "kv_role", "engine_id", "kv_load_failure_policy"),
            *("kv_connector_extra_config",),
        ),
        (f"{CONFIG}:VllmConfig(kv_transfer_config)", "a part of the config"),
        (f"{OUTPUTS}:KVConnectorOutput", "the report of a worker"),
        (f"{OUTPUTS}:ModelRunnerOutput(kv_connector_output)", "a worker reports"),
        ("Scheduler.connector", "the connector of an engine"),
        ("SchedulerOutput.kv_connector_metadata", "the metadata for its worker"),
    ),
    *entries(
        "store",
        (f"{CONFIG}:KVTransferConfig(kv_connector_module_path)", "the connector class of kvproof"),
        (f"{BASE}:KVConnectorBase_V1", "its base class"),
        (f"{BASE}:KVConnectorBase_V1(vllm_config)", "the connector is built"),
        (f"{BASE}:KVConnectorBase_V1(role)", "the connector is built"),
        (f"{BASE}:KVConnectorBase_V1(kv_cache_config)", "the connector is built"),
        (f"{BASE}:SupportsHMA", "its base class"),
        (f"{BASE}:KVConnectorMetadata", "the metadata for its worker"),
        *alike(
            f"{BASE}:KVConnectorBase_V1.*",
            "vLLM calls it",
            *("get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta"),
            *("request_finished", "start_load_kv", "wait_for_layer_load", "save_kv_layer"),
            *("wait_for_save",),
        ),
        (f"{BASE}:SupportsHMA.request_finished_all_groups", "vLLM calls it"),
        *alike("Request.*", "the tokens that it could load", "all_token_ids", "num_tokens"),
        ("KVCacheBlocks.get_block_ids", "the blocks it fills"),
        (f"{OUTPUTS}:KVConnectorOutput(invalid_block_ids)", "the blocks that it failed to load"),
    ),
    *entries(
        "failed loads",
        (
            f"{OUTPUTS}:KVConnectorOutput(failed_recving) | !{RESULTS}",
            "a read that failed; older releases report blocks",
        ),
        *(
            (
                f"{OUTPUTS}:KVConnectorOutput(failed_recving) | " + _any(WORKERS, f".{name}"),
                "the blocks of a read that failed, in older releases",
            )
            for name in ("_handle_failed_transfer", "get_block_ids_with_load_errors")
        ),
    ),
    *entries(
        "P/D",
        ("Scheduler.failed_recving_kv_req_ids", "a read that failed"),
        (f"{OUTPUTS}:KVConnectorOutput(finished_recving)", "D has read"),
        (f"{OUTPUTS}:KVConnectorOutput(finished_sending)", "P may free"),
        ("Scheduler.finished_recving_kv_req_ids", "loads that have ended"),
        ("NixlConnector.connector_scheduler", "the connector of an engine"),
        (_any(WORKERS), "the worker that copies"),
        (_any(WORKERS, ".register_kv_caches"), "its worker starts"),
        (_any(WORKERS, "~nixl_wrapper"), "the agent that copies"),
        (_any(WORKERS, "~_reqs_to_send"), "the leases of the sender"),
        (
            _any(WORKERS, ".get_transfer_results") + f" | !{RESULTS}",
            "the copies that have ended; in older releases without their failures",
        ),
        (
            _any(WORKERS, ".get_transfer_results") + " | " + _any(WORKERS, ".get_finished"),
            "the copies that have ended",
        ),
        *(
            (f"{RESULTS}.{name} | !{RESULTS}", "the copies that have ended")
            for name in ("finished_recving", "failed_recving", "finished_sending")
        ),
        (
            _any(WORKERS, "._compute_desc_ids(block_ids)")
            + " | "
            + _any(WORKERS, "._get_block_descs_ids(block_ids)"),
            "the blocks of a copy",
        ),
        ("NixlConnectorScheduler~side_channel_port", "where an engine's worker is found"),
        (
            "KVCacheConfig.transfer_groups | KVCacheConfig.kv_cache_groups",
            "the groups that are transferred",
        ),
        ("KVCacheGroupSpec.kv_cache_spec", "the groups that are transferred"),
        *(
            (f"NixlConnectorScheduler~{key}", "the transfer parameters")
            for key in ("do_remote_prefill", "do_remote_decode", "remote_block_ids")
        ),
    ),
)

PULL = entries(
    "pull",
    (f"{NIXL}:NixlConnector | {UP_TO_0_19}:NixlConnector", "the connector"),
    (_any(PULL_WORKERS, ".start_load_kv"), "a step of the engine starts"),
    (_any(WORKERS, "~_recving_transfers"), "reads that have not ended"),
    (_any(WORKERS, "~_remote_agents"), "the engines from which a worker reads"),
    ("NixlConnectorMetadata.reqs_to_recv", "the reads of D"),
    (_metadata("ReqMeta.local_block_ids"), "the blocks D reads into"),
    (_metadata("ReqMeta.remote"), "the blocks D reads"),
    (_metadata("RemoteMeta.block_ids"), "the blocks D reads"),
    (
        f"{NIXL}.metadata:ReqMeta.awaiting_kvs | !{OUTPUTS}:KVConnectorOutput(failed_recving)",
        "whether D waits; older releases use an empty list",
    ),
)

TURNS = entries(
    "turns",
    *(
        (f"NixlConnectorScheduler~{key}", "the connector works in both directions")
        for key in ("bidirectional_kv_xfer", "kv_recompute_threshold", "remote_num_tokens")
    ),
)

BESIDE = entries(
    "store beside P/D",
    (f"{MULTI}:MultiConnector", "the connectors of an engine"),
    (f"{MULTI}:MultiConnector~_connectors", "the connectors of an engine"),
    (f"{MULTI}:MultiKVConnectorMetadata(metadata)", "the metadata of each connector"),
)

ROLES = entries(
    "one way",
    (f"{CONFIG}:KVTransferConfig.is_kv_producer", "the role of P"),
    (f"{CONFIG}:KVTransferConfig.is_kv_consumer", "the role of D"),
)

PUSH = entries(
    "push",
    (f"{NIXL}:NixlPushConnector", "the connector"),
    (PUSH_WORKER, "its worker"),
    (f"{PUSH_WORKER}.start_load_kv", "a step of the engine starts"),
    (f"{PUSH_WORKER}~_sending_transfers", "writes that have not ended"),
    (f"{PUSH_WORKER}~_push_finished_blocks", "the blocks that P must write"),
    (f"{PUSH_WORKER}~_pending_d_registrations", "the registrations of D"),
    ("NixlPushConnector.build_connector_meta", "the metadata for a worker"),
    ("NixlPushConnectorMetadata.push_registrations", "D registers its blocks"),
    ("NixlPushConnectorScheduler.engine_id", "the parameters from a router"),
    ("NixlPushConnectorScheduler.side_channel_host", "the parameters from a router"),
    ("NixlPushConnectorScheduler._push_registration_deadlines", "the deadline of a registration"),
    ("Request.kv_transfer_params", "the transfer parameters of a request"),
    *alike(
        "NixlPushConnectorScheduler~*",
        "the parameters from a router",
        *("remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size"),
        *("remote_num_tokens", "local_block_ids"),
    ),
)

ENTRIES = (*CONNECTOR, *PULL, *BESIDE, *TURNS, *ROLES, *PUSH)
