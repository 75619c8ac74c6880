"""vLLM 0.32.0, found by kvproof on the live connector. D's full-attention cache covers all tokens
that P offers, but D has no Mamba state there. vLLM asks the connector for tokens after this hit,
and there are none. Then vLLM reduces the hit, because the state is missing, and does not ask the
connector again. D computes the prompt from the start, although P has the state. It would be enough
to ask again, or to leave one block to load."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="full_hit_gives_up_load",
    origin="kvproof, vLLM 0.32.0",
    mistake=(
        "a hit on all offered tokens is reduced because the state is missing, and nothing is loaded"
    ),
    replaces=("offered_beside_hit", lambda offered, full: offered if full < offered else 0),
    breaks=("offered_tokens_are_loaded",),
    cluster="pd-covering",
    trace_events=11,
)
