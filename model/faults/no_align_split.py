"""vllm#43559, fixed by vllm#51113: a chunk ended inside a block, and its state was later hashed as
the state of the full block."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def uncut(_start: Num, tokens: Num, *_others: Num) -> Num:
    """All tokens that the budget allows."""
    return tokens


FAULT = Fault(
    name="no_align_split",
    origin="vllm#51113",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake=(
        "a chunk ends where the token budget ends, and its state is cached as the state of the "
        "block"
    ),
    replaces={"arithmetic.counts:align_chunk": uncut},
    breaks=(
        "cached_block_holds_its_key",
        "repeated_prompt_hits",
    ),
    cluster="hybrid-chunked",
    trace_events=4,
    also_in=("hybrid-siblings",),
)
