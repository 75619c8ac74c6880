"""vllm#44409 (vllm#33775): a hit block is still in the free queue when another group allocates
blocks. The allocation takes the hit block."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="untouched_hits",
    origin="vllm#44409",
    in_vllm="BlockPool.touch",
    mistake="hit blocks are put into the block table without a reference",
    replaces={"reference.blocks.pool:touch": lambda engine, _blocks: engine},
    breaks=(
        "references_are_exact",
        "no_block_free_and_held",
    ),
    cluster="full",
    trace_events=3,
)
