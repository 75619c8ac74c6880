"""vllm#32255 (review) and vllm#46283: the blocks of an aborted load are to be freed when the
transfer ends. When the report of its end arrives, the request is gone from the scheduler, and
nothing frees the blocks."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="aborted_load_never_frees",
    origin="vllm#46283",
    in_vllm="Scheduler._update_from_kv_xfer_finished",
    mistake="the blocks of an aborted load are not freed when its transfer ends",
    replaces={
        "reference.transfers.transfer_ends:without_aborted": lambda engine, request: engine.without(
            request.id
        )
    },
    breaks=("references_are_exact", "all_blocks_return"),
    cluster="pd-aborting",
    trace_events=7,
)
