"""The review of #32255, and #46283: the delayed free waits for an event that finds nobody to
free."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="aborted_load_never_frees",
    origin="vllm#46283",
    mistake="the blocks of an aborted load are not freed when its transfer ends",
    replaces=("free_aborted", lambda engine, _request, _rules: engine),
    breaks=("references_are_exact", "all_blocks_return"),
    cluster="pd-aborting",
    trace_events=7,
)
