"""What vLLM 0.32.0 does (#46892). A store brings the Mamba state at the end of what it has, and the
same step computes a chunk after it: one block for each, and the prediction is cut to one. Where the
pool has exactly as many blocks as were predicted, it raises and the engine dies."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="loaded_state_not_predicted",
    origin="vllm#46892",
    mistake="the block for the state a store brings is not counted among those to be taken",
    replaces=("tokens_loaded_before_chunk", lambda _loaded, _end: 0),
    breaks=("engine_survives", "predicted_is_taken"),
    cluster="store-tight",
    trace_events=8,
    dies_in=("get_new_blocks",),
)
