"""vLLM 0.32.0, found by kvproof on the live connector. D uses drafts, and its answer ends. In the
reverse transfer, D offers all tokens that it has computed. These include accepted drafts after the
end of the answer, which are cut off, and the tokens of a step in flight. P uses them as tokens of
the next turn, which has other tokens at these positions."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def all_computed(computed: Num, settled: Num, known: Num) -> Num:  # noqa: ARG001
    """The number of tokens that the scheduler counts as computed."""
    return computed


FAULT = Fault(
    name="held_goes_beyond_answer",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorScheduler.request_finished",
    mistake="P uses tokens that D computed after the end of its answer as tokens of the next turn",
    replaces={"arithmetic.counts:tokens_offered": all_computed},
    breaks=("request_reads_its_own_prefix", "cached_block_holds_its_key"),
    cluster="turns-drafts",
    also_in=("turns-async",),
    trace_events=14,
    concerns=lambda cluster: cluster.follow_up_turns and cluster.decode.drafts > 0,
)
