"""vLLM 0.32.0 (vllm#46892): a store loads the Mamba state at the end of its tokens, and the same
step computes a chunk after it. This needs two blocks, and the prediction is limited to one. If the
pool has exactly the predicted number of blocks, the allocation raises and the engine dies."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="loaded_state_not_predicted",
    origin="vllm#46892",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    mistake="the prediction does not include the block for the state that a store loads",
    replaces={"reference.blocks.allocation:tokens_loaded_before_chunk": lambda _loaded, _end: 0},
    breaks=("engine_survives", "predicted_is_taken"),
    cluster="store-tight",
    trace_events=8,
    dies_in=("get_new_blocks",),
)
