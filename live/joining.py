"""How the worker of this vLLM trims the block lists of a transfer, for engines of two records."""

from kvproof.live.driver import nixl
from kvproof.model.config import EngineConfig
from kvproof.model.state import Lists


def trimmed(prefill: EngineConfig, decode: EngineConfig, local: Lists, remote: Lists) -> nixl.Pairs:
    """D's and P's lists after the trimming. Where the worker would die of them, they are as they
    are."""
    try:
        return nixl.paired(prefill, nixl.worker(decode), local, remote)
    except (AssertionError, ValueError, IndexError):
        return tuple(zip(local, remote, strict=False))
