"""What vLLM 0.32.0 does, found by kvproof on the live connector. D has computed as far as the
prompt of the next turn goes, or further. P counts as loaded as many tokens as its prompt has, and
takes for their state the one D holds, which is that of more tokens; where it is of as many, P
computes its last token once more, on top of it. Of a window the blocks P needs may be gone."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def as_if_whole(held: Num, prompt: Num, _whole: bool) -> Num:
    """As many tokens as P has, as if every group were of full attention."""
    return counts.held_tokens_loaded(held, prompt, True)


FAULT = Fault(
    name="held_state_is_of_the_prompt",
    origin="kvproof, vLLM 0.32.0",
    mistake="the state and the window of all that D computed are taken for those of P's prompt",
    replaces=("held_tokens_loaded", as_if_whole),
    breaks=(
        "prefill_and_decode_agree",
        "state_read_is_state_at_computed",
    ),
    cluster="turns-state",
    trace_events=16,
    concerns=lambda cluster: cluster.follow_up_turns,
)
