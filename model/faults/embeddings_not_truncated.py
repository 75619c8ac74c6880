"""vllm#37310 (review): the truncation looked only at `prompt_token_ids`. P did not truncate a
prompt of embeddings, and D used the state of N tokens as the state of N - 1 tokens."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.offers import backoff_on_decode


def only_token_ids(kinds: tuple[str, ...], embeds: bool) -> int:
    """No truncation if the prompt has no token ids."""
    return 0 if embeds else backoff_on_decode(kinds)


FAULT = Fault(
    name="embeddings_not_truncated",
    origin="vllm#37310",
    in_vllm="NixlBaseConnectorScheduler._truncate_request_for_prefill",
    mistake="P does not truncate a prompt that is submitted as embeddings",
    replaces={"reference.transfers.offers:backoff_on_prefill": only_token_ids},
    breaks=(
        "prefill_and_decode_agree",
        "state_read_is_state_at_computed",
    ),
    cluster="pd-embeds",
    trace_events=7,
)
