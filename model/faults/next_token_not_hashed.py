"""A hit used the whole match, and the hash of a block did not cover the next token. The drafter had
computed the last token of the block with another next token (vllm#50438)."""

from kvproof.model.faults.fault import Fault

UNSEEN = "*"
"""Stands for a token that a hash does not cover."""


def own_tokens(tokens: str, end: int, ahead: int) -> str:
    """The same key for every token after the block."""
    return tokens[:end] + UNSEEN * ahead


FAULT = Fault(
    name="next_token_not_hashed",
    origin="vllm#50438",
    mistake="no block of a match is dropped, and the hash of a block does not cover the next token",
    replaces={"reference.blocks.groups:hashed_prefix": own_tokens},
    breaks=("drafter_holds_its_key", "hit_holds_in_every_group"),
    trace_events=2,
    cluster="lookahead-hashes",
)
