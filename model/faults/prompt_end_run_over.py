"""Without the stop of vllm#46384, a chunk runs past the last prefix of its prompt that has a hash.
Attention is cached there, and the Mamba state is not. The same prompt then hits one block less when
it comes again."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="prompt_end_run_over",
    origin="vllm#46384",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="no chunk ends where a hit on the whole prompt would end",
    replaces={"arithmetic.counts:tail_chunk": lambda _start, tokens, _boundary, _tail: tokens},
    breaks=("repeated_prompt_hits",),
    cluster="partial",
    trace_events=7,
)
