"""The slots of blocks and what they hold, as parts of a reason."""

from kvproof.connectors.facts import ANOTHER_RANK, Slot
from kvproof.model.because import Reason, reason
from kvproof.model.finding import Finding


def place(slot: Slot) -> Reason:
    """A slot: "block 3, slot 1 of layers.0.attn"."""
    return reason(
        "slot",
        "block {block}, slot {offset} of {layer}",
        block=slot.block,
        offset=slot.offset,
        layer=slot.layer,
    )


def content(prefix: str | None) -> Reason:
    """What a slot holds."""
    if prefix is None:
        return reason("nothing", "nothing that a step computed for it")
    if prefix.startswith(ANOTHER_RANK):
        tokens = prefix.removeprefix(ANOTHER_RANK)
        return reason("another_rank", "the KV of {tokens!r} of another rank", tokens=tokens)
    return reason("kv_of", "the KV of {tokens!r}", tokens=prefix)


def is_of_another_rank(finding: Finding) -> bool:
    """Whether a finding says that a slot holds what another rank has of its layer."""
    values = (value for each in finding.reasons for value in each.facts.values())
    return any(isinstance(value, Reason) and value.kind == "another_rank" for value in values)
