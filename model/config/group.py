"""A group of layers that share a block table."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from kvproof.model.config.limits import check_declared, refusal
from kvproof.model.errors import NotValid

Kind = Literal["full", "window", "mamba"]
Mode = Literal["align", "none"]


class Group(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True):
    """One KV-cache group: layers of one kind that share a block table.

    `kind` is full attention, a sliding window, or Mamba. `block_size` is in tokens. `window`
    (tokens) is for kind `window`. `mode` is for kind `mamba`: `align` caches states at block
    boundaries; `none` keeps one state for each request and caches nothing. `eagle` says that an
    EAGLE or MTP drafter has layers in this group (see `Engine.drafts`).
    """

    kind: Kind
    block_size: Annotated[int, Meta(ge=1, le=4096)]
    window: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    mode: Mode = "align"
    eagle: bool = False

    def __post_init__(self) -> None:
        check_declared(self, "group")
        if self.kind == "window" and not self.window:
            raise refusal(self, "group", "window", "a whole number from 1 on")
        if self.eagle and self.kind == "mamba":
            raise NotValid(
                "A Mamba group is marked eagle, but a drafter has no Mamba layers. "
                "Use eagle for an attention group.",
                "eagle",
            )

    @property
    def attention(self) -> bool:
        """Whether a block of this group holds the KV of each token, not one state."""
        return self.kind != "mamba"

    @property
    def aligned(self) -> bool:
        """Whether this is a Mamba group whose states are cached at block boundaries."""
        return self.kind == "mamba" and self.mode == "align"
