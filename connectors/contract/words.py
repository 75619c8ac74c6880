"""Words for facts."""

from kvproof.connectors.facts import Slot


def place(slot: Slot) -> str:
    """A slot: "block 3, slot 1 of layers.0.attn"."""
    return f"block {slot.block}, slot {slot.offset} of {slot.layer}"


def content(prefix: str | None) -> str:
    """What a slot holds."""
    return "nothing that a step computed for it" if prefix is None else f"the KV of {prefix!r}"
