"""#45138: after a failed load the computed tokens were cut, and the step behind the failing one was
taken as if nothing had happened: its token was computed on KV that was never there, and the request
stayed off by its placeholders."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="poisoned_step_counts",
    origin="vllm#45138",
    mistake="a step dispatched after one whose load has failed keeps its token and its placeholder",
    replaces=("void_steps", lambda engine, _name: engine),
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
