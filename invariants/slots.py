"""The slots of blocks and what they hold, as parts of a reason."""

from kvproof.model.because import Reason, reason
from kvproof.model.facts.connectors import ANOTHER_RANK, Slot


def place(slot: Slot) -> Reason:
    """A slot in words: "block 3, slot 1 of layers.0.attn"."""
    return reason(
        "slot",
        "block {block}, slot {offset} of {layer}",
        block=slot.block,
        offset=slot.offset,
        layer=slot.layer,
    )


def content(prefix: str | None) -> Reason:
    """The content of a slot in words."""
    if prefix is None:
        return reason("nothing", "nothing that a step computed for it")
    if prefix.startswith(ANOTHER_RANK):
        tokens = prefix.removeprefix(ANOTHER_RANK)
        return reason("another_rank", "the KV of {tokens!r} of another rank", tokens=tokens)
    return reason("kv_of", "the KV of {tokens!r}", tokens=prefix)
