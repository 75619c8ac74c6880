"""Before #37310 D asked for N tokens. Its last step computes token N again, on a state that must
then be the state of N-1 tokens and is not."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import TABLES, TRANSFERS, claims
from kvproof.model.faults.fault import Fault


def whole_prompt(prompt: Num, backoff: Num) -> Num:  # noqa: ARG001
    """All prompt tokens, whatever D is going to compute again."""
    return prompt


FAULT = Fault(
    name="decode_loads_whole_prompt",
    origin="vllm#37310",
    mistake="D loads the state of all N tokens and then applies token N a second time",
    replaces=("tokens_loaded_by_decode", whole_prompt),
    breaks=("prefill_and_decode_agree",),
    cluster="pd",
    trace_events=7,
    also_in=("pd-state",),
    refutes=claims(TABLES, "loads_what_is_offered") | claims(TRANSFERS, "delivered_is_loaded"),
    refutes_in_turn=claims(("mamba", "state"), "null_is_not_needed"),
)
