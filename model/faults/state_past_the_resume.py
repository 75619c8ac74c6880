"""With a drafter, a repeated prompt resumes one block earlier, and no state was kept there
(vllm#53945). The hit rate of hybrid models with EAGLE was 0 %."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.faults.fault import Fault


def at_the_last_boundary(*numbers: Num) -> Num:
    """The align split as if there were no drafter: without the number at index 7."""
    return align_chunk(*numbers[:7])


FAULT = Fault(
    name="state_past_the_resume",
    origin="vllm#53945",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake=(
        "the last state of a prompt is kept after the boundary at which a drafter lets the "
        "prompt resume"
    ),
    replaces={"arithmetic.counts:align_chunk": at_the_last_boundary},
    breaks=("repeated_prompt_hits",),
    cluster="hybrid-drafts",
    trace_events=7,
)
