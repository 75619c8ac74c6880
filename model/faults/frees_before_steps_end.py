"""vllm#45357: a request ended with the output of step N while step N + 1 still wrote its blocks.
The blocks were free at once, and the load of another request filled them at the same time."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool

FAULT = Fault(
    name="frees_before_steps_end",
    origin="vllm#45357",
    in_vllm="Scheduler._free_request_blocks",
    mistake="the blocks of an ended request are freed while a step in flight still writes them",
    replaces={
        "reference.features.in_flight:free_behind_steps": lambda engine, request: pool.release_all(
            engine, request
        )
    },
    breaks=("settled_frees",),
    cluster="pd-async",
    trace_events=3,
)
