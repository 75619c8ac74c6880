"""This module explains the words of a printed trace: of these only the ones that it uses."""

from collections.abc import Collection, Iterator

from kvproof.reports.screen import ScreenLine

WORDS = {
    "status": "where a request is in its life",
    "prompt": "the tokens of a prompt; each letter is a token, and a dot is a sampled token",
    "output": "the sampled tokens",
    "submitted_prompt_tokens": "the length of the prompt as it was sent",
    "max_tokens": "the number of tokens that the request asks for",
    "route": "where the request goes: local, or from P to D",
    "embeds": "whether the prompt is embeddings, not token ids",
    "computed": "tokens of the request whose KV is in its blocks (num_computed_tokens)",
    "tables": "its blocks in the order of its tokens, group by group; 0 is the null block",
    "num_cached_blocks": "vLLM's counter of the request's cached blocks, for each group",
    "hit": "tokens that the last admission took from the prefix cache",
    "external": "tokens that the last admission takes from the connector",
    "shared": "tokens that the prompt shares with prompts served before; -1: evicted since",
    "shared_prefix_boundary": "where the prompt stops to be equal to an earlier one, in tokens",
    "preemptions": "whether the request was preempted",
    "drafts": "draft tokens that a step verifies",
    "states": "for each group the block with the Mamba state after the computed tokens",
    "refs": "the reference count of a block",
    "key": "the prefix under which a block is in the prefix cache, and its group in brackets",
    "also": "further prefixes under which a block is in the prefix cache",
    "holds": "what is in a block: for each slot the prefix that its KV was computed from",
    "free": "the free queue, the block that is taken next first",
    "running": "the running requests, in vLLM's order",
    "step": "the step whose output has not arrived: the tokens of each request",
    "steps": "the steps whose outputs have not arrived, oldest first",
    "pending": "sampled tokens of each request that are not known yet",
    "deferred": "blocks of removed requests that are freed after so many step outputs",
    "stored": "the prefixes that the external store can load",
    "reports": "the KV events of the step",
    "copies": "block copies of the step: group, source, target",
    "served": "prompts that were computed here, and the tokens each shared with earlier ones",
    "mirror": "the keys that a listener of KV events assumes to be cached",
    "dead": "the exception that ended the engine",
    "ended": "the requests that ended, with their engine",
    "failures": "how many loads may still fail",
    "phase": "how far a transfer is",
    "tokens": "the tokens that the sender of a transfer offers",
    "remote": "the sender's blocks, before trimming",
    "local": "the receiver's blocks",
    "pairs": "the receiver's blocks <- the sender's blocks that fill them, group by group",
}
"""The fields of a state, in the order in which they are explained."""


def legend(used: Collection[str]) -> Iterator[ScreenLine]:
    """Return a line for each word that is used."""
    known = [word for word in WORDS if word in used]
    if not known:
        return
    width = max(map(len, known))
    yield ScreenLine("Words")
    for word in known:
        yield ScreenLine(f"  {word:{width}}  {WORDS[word]}", hang=width + 4)
