"""The limit on the commits of vLLM in the cache folder: commits are unpacked there, and each takes
57 MB.

The commits that were not used for the longest time are removed where all take more than a limit,
but never one that a process is using. Releases that were installed stay.
"""

import os
from pathlib import Path
from typing import NamedTuple

from kvproof.live.trees.mirror import remove_orphans
from kvproof.model.errors import UsageError
from kvproof.model.files.folders import remove_unused, size_of

LIMIT = "KVPROOF_CACHE_GB"
"""The environment variable with the limit on commits and their mirrors, in GB."""

LIMIT_GB = 2.0

GB = 1e9


class KeptSize(NamedTuple):
    """How many commits of vLLM a cache folder has, and the bytes that these and all mirrors
    take."""

    commits: int
    size: int


def limit_bytes() -> float:
    """The most that commits and mirrors may take, in bytes. Raises UsageError."""
    given = os.environ.get(LIMIT, "")
    try:
        limit_gb = float(given) if given else LIMIT_GB
    except ValueError:
        limit_gb = -1.0
    if not 0 <= limit_gb < float("inf"):
        raise UsageError(f"{LIMIT} is {given!r}, which is no size. Use a number of GB, such as 2.")
    return limit_gb * GB


def kept_size(cache: Path) -> KeptSize:
    """The number of commits and the bytes of vLLM in a cache folder."""
    sizes = _sizes(cache)
    return KeptSize(len(sizes), sum(sizes.values()) + size_of(cache / "trees"))


def shrink(cache: Path) -> None:
    """Remove the commits that were not used for the longest time, until the others and all mirrors
    take no more than the limit. What is in use stays. Raises UsageError."""
    limit, sizes = limit_bytes(), _sizes(cache)
    total = sum(sizes.values()) + size_of(cache / "trees")
    for folder in sorted(sizes, key=lambda folder: folder.stat().st_mtime):
        if total <= limit:
            break
        if remove_unused(folder):
            total -= sizes[folder]
    remove_orphans(cache / "trees")


def _sizes(cache: Path) -> dict[Path, int]:
    """The commits that are whole, with their sizes. What is still unpacked has a name with a
    dot."""
    folders = (path for path in (cache / "commits").glob("*") if "." not in path.name)
    return {path: size_of(path) for path in folders if path.is_dir()}
