"""vLLM 0.32.0, found by kvproof on the live connector. D computes the number of offered tokens from
the length of `prompt_token_ids`, which a prompt of embeddings does not have. P computes the prompt,
and D loads nothing and computes it again."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.offers import offered_by_prefill
from kvproof.model.state import Request


def of_token_ids(cluster: config.Cluster, request: Request) -> int:
    """Nothing of a prompt without token ids."""
    return 0 if request.embeds else offered_by_prefill(cluster, request)


FAULT = Fault(
    name="embeddings_not_loaded",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    mistake="D loads nothing of a prompt that is submitted as embeddings",
    replaces={"reference.transfers.offers:offered_by_prefill": of_token_ids},
    breaks=("offered_tokens_are_loaded",),
    cluster="pd-embeds",
    trace_events=7,
)
