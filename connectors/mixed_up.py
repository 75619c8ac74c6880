"""Finds KV of the right tokens that belongs to another rank, adapter or salt."""

from typing import get_args

from kvproof.connectors.plan import Beside
from kvproof.model.because import Reason
from kvproof.model.finding import Finding

MARKS = tuple(f"{each}:" for each in get_args(Beside) if each)
"""The text in front of the tokens of a request with an adapter or a salt."""


def mixed_up(finding: Finding) -> str:
    """Say to which other rank, adapter or salt the KV in a slot belongs, if it is that of the right
    tokens. Empty for any other KV."""
    values = [value for each in finding.reasons for value in each.facts.values()]
    held = [value for value in values if isinstance(value, Reason) and "tokens" in value.facts]
    if any(each.kind == "another_rank" for each in held):
        return "another rank's KV"
    if len(held) < 2:
        return ""
    (right, tokens), (found, others) = (_parts(str(each.facts["tokens"])) for each in held[:2])
    if tokens != others or right == found:
        return ""
    return "another adapter's KV" if "lora:" in right + found else "another salt's KV"


def _parts(prefix: str) -> tuple[str, str]:
    """The adapter or salt of KV, and the rest of its prefix. A prompt may contain a colon too."""
    for mark in MARKS:
        before, found, tokens = prefix.partition(mark)
        if found:
            return mark, before + tokens
    return "", prefix
