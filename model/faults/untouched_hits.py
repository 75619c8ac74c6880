"""The window of #44409 (#33775): a hit block is still in the free queue when another group takes
blocks, and is given away."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="untouched_hits",
    origin="vllm#44409",
    mistake="hit blocks are put into the table and not referenced",
    replaces=("touch_hits", lambda engine, _blocks: engine),
    breaks=(
        "references_are_exact",
        "no_block_free_and_held",
    ),
    cluster="full",
    trace_events=3,
)
