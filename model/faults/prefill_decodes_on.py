"""P must sample one token (vllm#37310); a proxy asked for ten (vllm#18248). If P samples as many
tokens as the user asked for, it decodes the whole answer. P then sends the KV and states of more
tokens than D counts."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.faults.claims import TABLES, TRANSFERS, claims
from kvproof.model.faults.fault import Fault


def as_submitted(max_tokens: Num, prefill: Truth) -> Num:  # noqa: ARG001
    """The number of tokens of the whole answer."""
    return max_tokens


FAULT = Fault(
    name="prefill_decodes_on",
    origin="vllm#18248",
    mistake="P decodes the answer before it offers the prompt to D",
    replaces={"arithmetic.counts:output_tokens": as_submitted},
    breaks=("prefill_and_decode_agree",),
    cluster="pd",
    trace_events=9,
    refutes=claims(TABLES, "computes_known_tokens") | claims(TRANSFERS, "delivered_is_loaded"),
    refutes_in_turn=claims(TABLES, "delivered_is_counted"),
)
