"""vllm#45138: after a failed load vLLM reduced the computed tokens. It processed the next step of
the request, which was already dispatched, as if nothing had happened. The token of that step was
computed from KV that was never loaded, and the number of placeholders stayed wrong."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="poisoned_step_counts",
    origin="vllm#45138",
    in_vllm="Scheduler._handle_invalid_blocks",
    mistake="a step dispatched after a step with a failed load keeps its token and its placeholder",
    replaces={"reference.transfers.failed_load:void_steps": lambda engine, _name: engine},
    breaks=(
        "no_token_of_a_failed_load",
        "placeholders_are_samples_in_flight",
        "step_makes_progress",
        "every_request_can_finish",
    ),
    cluster="store-failing-async",
    trace_events=6,
    concerns=lambda cluster: (
        bool(cluster.failures) and any(e.store and e.overlaps for e in cluster.engines)
    ),
)
