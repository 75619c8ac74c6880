"""What vLLM 0.32.0 does, found by kvproof on the live connector. D's full-attention cache covers
all that P offers, but D has no state there. The connector is asked for what lies beyond that hit,
which is nothing; then the hit is taken back for want of a state, and nobody asks again. The prompt
is computed from the start, though P has the state ready. Asking again, or leaving it one block to
load, would do."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="full_hit_gives_up_load",
    origin="kvproof, vLLM 0.32.0",
    mistake="a hit on all P offers is taken back for want of a state, and nothing is loaded",
    replaces=("offered_beside_hit", lambda offered, full: offered if full < offered else 0),
    breaks=("offered_tokens_are_loaded",),
    cluster="pd-covering",
    trace_events=11,
)
