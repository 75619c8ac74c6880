"""A hit inside a block needs one block more than the tokens need. The prediction does not include
this block, and the allocation takes it (compare vllm#46892)."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import partial_block_hits
from kvproof.model.reference.blocks.allocation import predicted
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import Engine, Request


def without_copies(
    cfg: config.EngineConfig, engine: Engine, request: Request, hit: Hit | None, end: int
) -> int:
    """The prediction without the blocks for copies."""
    hitting = request if hit is None else request._replace(hit=hit.tokens)
    copied = (
        partial_block_hits.copies(cfg, engine, hitting, index, hit is not None)
        for index in range(len(cfg.groups))
    )
    return predicted(cfg, engine, request, hit, end) - sum(copied)


FAULT = Fault(
    name="copy_not_predicted",
    origin="vllm#46892",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    mistake="the prediction does not include the block for a private copy",
    replaces={"reference.blocks.allocation:predicted": without_copies},
    breaks=("predicted_is_taken", "engine_survives"),
    cluster="partial",
    trace_events=6,
    also_in=("partial-async",),
)
