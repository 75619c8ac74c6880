"""vLLM 0.32.0: after drafts were rejected, a request needs fewer state blocks than it holds, and
the prediction is negative (compare vllm#46892 and vllm#43382). The request takes no block."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, min_
from kvproof.model.arithmetic.counts import state_blocks_predicted
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault


def below_none(
    end: Num, block_size: Num, held_blocks: Num, scratch: int = 0, fresh: int = 0
) -> Num:
    """With a drafter: the needed blocks minus the held blocks."""
    new_blocks = counts.blocks_for_tokens(end, block_size) + scratch - held_blocks
    if not scratch:
        return state_blocks_predicted(end, block_size, held_blocks)
    return min_(new_blocks, 1 + fresh)


def states_and_a_drafter(cluster: Cluster) -> bool:
    """Whether an engine keeps a Mamba state for each draft."""
    return any(engine.drafts and engine.aligned_group for engine in cluster.engines)


FAULT = Fault(
    name="fewer_than_none_predicted",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="MambaManager.get_num_blocks_to_allocate",
    mistake="if a request needs fewer state blocks than it holds, the prediction is negative",
    replaces={"arithmetic.counts:state_blocks_predicted": below_none},
    breaks=("predicted_is_taken",),
    cluster="hybrid-drafts-cut",
    trace_events=9,
    concerns=states_and_a_drafter,
)
