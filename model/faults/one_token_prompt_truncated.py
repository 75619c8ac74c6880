"""P leaves a prompt of one token alone (vllm#37310). Truncated like the others it has no token
left: nothing is ever scheduled for it, and it waits for ever. No public report of the slip is
known."""

from kvproof.model.arithmetic.algebra import Num, Truth, if_
from kvproof.model.faults.claims import TABLES, claims
from kvproof.model.faults.fault import Fault


def however_short(prompt: Num, backoff: Num, truncated: Truth) -> Num:
    """Once, but down to nothing."""
    return if_(truncated, prompt, prompt - backoff)


FAULT = Fault(
    name="one_token_prompt_truncated",
    origin="vllm#37310",
    mistake="P truncates a prompt of one token, and nothing is left of it",
    replaces=("prompt_after_truncation", however_short),
    breaks=("every_request_can_finish",),
    cluster="pd-one-token",
    trace_events=1,
    refutes=claims(TABLES, "counts_are_none_when_gone", "truncated_once"),
)
