"""vLLM 0.32.0: a request that needs fewer state blocks than it holds, after drafts were rejected,
is predicted to take less than none (the class of vllm#46892 and vllm#43382). It takes none."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, min_
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault


def below_none(
    end: Num, block_size: Num, held_blocks: Num, scratch: int = 0, fresh: int = 0
) -> Num:
    """What is needed less what is held, with a drafter."""
    new_blocks = counts.blocks_for_tokens(end, block_size) + scratch - held_blocks
    if not scratch:
        return counts.state_blocks_predicted(end, block_size, held_blocks)
    return min_(new_blocks, 1 + fresh)


def states_and_a_drafter(cluster: Cluster) -> bool:
    """Whether an engine keeps states of drafts."""
    return any(engine.drafts and engine.aligned_group for engine in cluster.engines)


FAULT = Fault(
    name="fewer_than_none_predicted",
    origin="kvproof, vLLM 0.32.0",
    mistake="where fewer state blocks are needed than held, less than none is predicted",
    replaces=("state_blocks_predicted", below_none),
    breaks=("predicted_is_taken",),
    cluster="hybrid-drafts-cut",
    trace_events=9,
    concerns=states_and_a_drafter,
)
