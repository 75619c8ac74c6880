"""vLLM 0.32.0, found by kvproof on the live connector. D computes the number of offered tokens from
the length of `prompt_token_ids`, which a prompt of embeddings does not have. P computes the prompt,
and D loads nothing and computes it again."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="embeddings_not_loaded",
    origin="kvproof, vLLM 0.32.0",
    mistake="D loads nothing of a prompt that is submitted as embeddings",
    replaces=("prompt_tokens_known", lambda prompt, embeds: 0 if embeds else prompt),
    breaks=("offered_tokens_are_loaded",),
    cluster="pd-embeds",
    trace_events=7,
)
