"""What vLLM 0.32.0 does, found by kvproof on the live connector. D drafts, and its answer ends. It
offers P all tokens it has computed: accepted drafts after the end of the answer, which are cut
off, and what a step in flight is scheduled to compute. P takes them for tokens of the next turn,
which has others there."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def all_computed(computed: Num, settled: Num, known: Num) -> Num:  # noqa: ARG001
    """As many tokens as the scheduler counts as computed."""
    return computed


FAULT = Fault(
    name="held_goes_beyond_answer",
    origin="kvproof, vLLM 0.32.0",
    mistake="tokens that D computed beyond the end of its answer are taken for the next turn's",
    replaces=("tokens_offered", all_computed),
    breaks=("request_reads_its_own_prefix", "cached_block_holds_its_key"),
    cluster="turns-drafts",
    trace_events=14,
    concerns=lambda cluster: cluster.follow_up_turns and cluster.decode.drafts > 0,
)
