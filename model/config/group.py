"""A group of layers that share a block table."""

from dataclasses import dataclass

from kvproof.model.config.limits import one_of, within
from kvproof.model.errors import UsageError

KINDS = ("full", "window", "mamba")
MODES = ("align", "none")


@dataclass(frozen=True)
class Group:
    """One KV-cache group: layers of one kind that share a block table.

    `block_size` is in tokens. `window` (tokens) is for kind `window`. `mode` is for kind `mamba`:
    `align` caches states at block boundaries; `none` keeps one state for each request and caches
    nothing. `eagle` says that an EAGLE or MTP drafter has layers in this group (see
    `Engine.drafts`).
    """

    kind: str
    block_size: int
    window: int = 0
    mode: str = "align"
    eagle: bool = False

    def __post_init__(self) -> None:
        one_of("kind of cache group", self.kind, KINDS)
        within("block_size", self.block_size, 1, "block_size")
        if self.kind == "window":
            within("window", self.window, 1, "window")
        one_of("Mamba cache mode", self.mode, MODES)
        if self.eagle and self.kind == "mamba":
            raise UsageError(
                "A Mamba group is marked eagle, but a drafter has no Mamba layers.  "
                "Use eagle for an attention group."
            )

    @property
    def attention(self) -> bool:
        """Whether a block of this group holds the KV of each token, not one state."""
        return self.kind != "mamba"

    @property
    def aligned(self) -> bool:
        """Whether this is a Mamba group whose states are cached at block boundaries."""
        return self.kind == "mamba" and self.mode == "align"
