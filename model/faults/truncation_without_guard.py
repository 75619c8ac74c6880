"""vllm#37310 (review): the scheduler asks the connector about a request again after every
preemption. Without `_p_side_truncated`, the connector drops one token each time."""

from kvproof.model.arithmetic.algebra import Num, Truth, if_
from kvproof.model.faults.claims import TABLES, claims
from kvproof.model.faults.fault import Fault


def always_shorter(prompt: Num, backoff: Num, truncated: Truth) -> Num:  # noqa: ARG001
    """One token less, on the first call and on later calls."""
    return if_(prompt > backoff, prompt - backoff, prompt)


FAULT = Fault(
    name="truncation_without_guard",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    mistake="P truncates the prompt again each time it schedules a preempted request",
    replaces={"arithmetic.counts:prompt_after_truncation": always_shorter},
    breaks=(
        "truncated_at_most_once",
        "prefill_and_decode_agree",
    ),
    cluster="pd-preempting",
    trace_events=11,
    also_in=("pd-state-preempting",),
    refutes=claims(TABLES, "truncated_once"),
    refutes_in_turn=claims(TABLES, "delivered_is_counted"),
)
