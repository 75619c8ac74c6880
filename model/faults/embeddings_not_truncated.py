"""The review of #37310: the truncation looked at `prompt_token_ids` only. A prompt of embeddings
reached P whole, and D continued from the state of N tokens as if it were that of N-1."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.transfer_rules import backoff_on_decode


def only_token_ids(kinds: tuple[str, ...], embeds: bool) -> int:
    """Nothing where there are no token ids to drop."""
    return 0 if embeds else backoff_on_decode(kinds)


FAULT = Fault(
    name="embeddings_not_truncated",
    origin="vllm#37310",
    mistake="a prompt sent as embeddings is not truncated on P",
    replaces=("backoff_on_prefill", only_token_ids),
    breaks=(
        "prefill_and_decode_agree",
        "state_read_is_state_at_computed",
    ),
    cluster="pd-embeds",
    trace_events=7,
)
