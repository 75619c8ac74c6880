"""What an engine reports of its cache (KV events), and what a listener makes of it.

A listener, such as a router, keeps a mirror: the set of keys it takes to be cached. What is stored
adds keys, what is removed takes one away, and a reset empties it. How many blocks are cached under
a key is not reported.

Source: `vllm.distributed.kv_events` of vLLM V1.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

Keys: TypeAlias = tuple[tuple[int, str], ...]
"""Cache keys, sorted."""


class Stored(NamedTuple):
    """Blocks of one group were cached, under these prefixes. `tokens` are those of the blocks, and
    `parent` the prefix before them. Where a hash covers tokens after its block, the prefixes and
    the parent end with them, and `lookahead` has them block by block."""

    group: int
    parent: str
    tokens: str
    prefixes: tuple[str, ...]
    lookahead: tuple[str, ...] = ()


class Removed(NamedTuple):
    """Nothing is cached any more under a key."""

    group: int
    prefix: str


class Cleared(NamedTuple):
    """Nothing is cached any more."""

    everything: bool = True


Report: TypeAlias = Stored | Removed | Cleared


def replayed(mirror: Keys, reports: Iterable[Report]) -> Keys:
    """The mirror after more reports."""
    known = set(mirror)
    for report in reports:
        if isinstance(report, Stored):
            known.update((report.group, prefix) for prefix in report.prefixes)
        elif isinstance(report, Removed):
            known.discard((report.group, report.prefix))
        else:
            known.clear()
    return tuple(sorted(known))
