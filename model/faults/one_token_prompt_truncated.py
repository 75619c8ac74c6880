"""P must not truncate a prompt of one token (vllm#37310). A truncated prompt of one token is empty:
nothing is ever scheduled for it, and it waits for ever. No public report of this mistake is
known."""

from kvproof.model.arithmetic.algebra import Num, Truth, if_
from kvproof.model.faults.claims import TABLES, claims
from kvproof.model.faults.fault import Fault


def however_short(prompt: Num, backoff: Num, truncated: Truth) -> Num:
    """Truncate once, also to an empty prompt."""
    return if_(truncated, prompt, prompt - backoff)


FAULT = Fault(
    name="one_token_prompt_truncated",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    mistake="P truncates a prompt of one token to an empty prompt",
    replaces={"arithmetic.counts:prompt_after_truncation": however_short},
    breaks=("every_request_can_finish",),
    cluster="pd-one-token",
    trace_events=2,
    refutes=claims(TABLES, "counts_are_none_when_gone", "truncated_once"),
)
