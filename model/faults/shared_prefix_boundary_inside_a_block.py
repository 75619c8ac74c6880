"""Where prompts part, the chunk ends one token before the boundary (the class of vllm#37898, whose
junction is a boundary). The state there can be cached for nobody, and the token that is left of the
block is waited for for ever."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def one_token_early(
    start: Num,
    tokens: Num,
    prefill_end: Num,
    known: Num,
    block_size: Num,
    chunk_limit: Num,
    shared_prefix_boundary: Num,
    eagle_drop_tokens: int = 0,
) -> Num:
    """With the junction one token too early."""
    early = shared_prefix_boundary - 1
    return counts.align_chunk(
        start, tokens, prefill_end, known, block_size, chunk_limit, early, eagle_drop_tokens
    )


FAULT = Fault(
    name="shared_prefix_boundary_inside_a_block",
    origin="vllm#37898",
    mistake="a chunk stops one token before the junction, inside a block",
    replaces=("align_chunk", one_token_early),
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-siblings",
    trace_events=7,
)
