"""Before vllm#37310, D loaded the state of N tokens. D computes token N again, and this step needs
the state of N - 1 tokens."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import TABLES, TRANSFERS, claims
from kvproof.model.faults.fault import Fault


def whole_prompt(prompt: Num, backoff: Num) -> Num:  # noqa: ARG001
    """All prompt tokens, also the tokens that D computes again."""
    return prompt


FAULT = Fault(
    name="decode_loads_whole_prompt",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    mistake="D loads the state of all N tokens and then applies token N a second time",
    replaces={"arithmetic.counts:tokens_loaded_by_decode": whole_prompt},
    breaks=("prefill_and_decode_agree",),
    cluster="pd",
    trace_events=7,
    also_in=("pd-state",),
    refutes=claims(TABLES, "loads_what_is_offered") | claims(TRANSFERS, "delivered_is_loaded"),
    refutes_in_turn=claims(("mamba", "state"), "null_is_not_needed"),
)
