"""Before #42554 `_mamba_block_aligned_split` asserted `num_external_computed_tokens == 0`: the
first load of a hybrid model killed D's engine."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="align_split_refuses_external",
    born_of="vllm#42554",
    mistake="the align split asserts that no token is external",
    replaces=("load_at_align_split", lambda: "dies"),
    breaks=("engine_survives",),
    cluster="pd",
)
