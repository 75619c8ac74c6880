"""A chunk ends one token before the shared prefix boundary, inside a block (compare vllm#37898,
where the boundary is a block boundary). The state there cannot be cached, and the request waits for
ever for the last token of the block."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.arithmetic.counts import align_chunk
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
    """The align split with the shared prefix boundary one token too early."""
    early = shared_prefix_boundary - 1
    return align_chunk(
        start, tokens, prefill_end, known, block_size, chunk_limit, early, eagle_drop_tokens
    )


FAULT = Fault(
    name="shared_prefix_boundary_inside_a_block",
    origin="vllm#37898",
    mistake="a chunk ends one token before the shared prefix boundary, inside a block",
    replaces={"arithmetic.counts:align_chunk": one_token_early},
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-siblings",
    trace_events=7,
)
