"""vLLM 0.32.0, found by kvproof on the live connector. D has computed at least as many tokens as
the prompt of the next turn has. P counts its whole prompt as loaded and uses D's state as the state
of these tokens. If D's state is of more tokens, it is the wrong state. If it is of as many, P
computes its last token once more on top of it. D may already have freed the blocks that P's window
needs."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.arithmetic.counts import held_tokens_loaded
from kvproof.model.faults.fault import Fault


def as_if_whole(held: Num, prompt: Num, _whole: bool) -> Num:
    """As many tokens as P's prompt has, as if every group were full attention."""
    return held_tokens_loaded(held, prompt, True)


FAULT = Fault(
    name="held_state_is_of_the_prompt",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorScheduler.get_num_new_matched_tokens",
    mistake="P uses the state and the window of all of D's tokens as those of its own prompt",
    replaces={"arithmetic.counts:held_tokens_loaded": as_if_whole},
    breaks=(
        "prefill_and_decode_agree",
        "state_read_is_state_at_computed",
    ),
    cluster="turns-state",
    trace_events=16,
    concerns=lambda cluster: cluster.follow_up_turns,
)
