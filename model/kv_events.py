"""KV events: what an engine reports about its cache, and how a listener uses the reports.

A listener, such as a router, keeps a mirror: the set of keys that it assumes to be cached. A
`Stored` report adds keys, a `Removed` report removes one key, a `Cleared` report removes all. No
report says how many blocks are cached under a key.

Source: `vllm.distributed.kv_events` of vLLM V1.
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

Keys: TypeAlias = tuple[tuple[int, str], ...]
"""Cache keys, sorted."""


class _Report(Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """A KV event. As JSON it is a list that begins with its type."""


class Stored(_Report, frozen=True):
    """Blocks of one group were cached under these prefixes. `tokens` has the tokens of the blocks,
    and `parent` is the prefix before them. Where a hash covers tokens after its block, the prefixes
    and the parent end with these lookahead tokens, and `lookahead` has them for each block."""

    group: int
    parent: str
    tokens: str
    prefixes: tuple[str, ...]
    lookahead: tuple[str, ...] = ()


class Removed(_Report, frozen=True):
    """No block is cached under this key any more."""

    group: int
    prefix: str


class Cleared(_Report, frozen=True):
    """No block is cached any more."""

    everything: bool = True


Report: TypeAlias = Stored | Removed | Cleared


def replayed(mirror: Keys, reports: Iterable[Report]) -> Keys:
    """The mirror of a listener after these further reports."""
    known = set(mirror)
    for report in reports:
        follow(known, report)
    return tuple(sorted(known))


def follow(known: set[tuple[int, str]], report: Report) -> None:
    """Change the keys that a listener assumes to be cached, as one report says."""
    if isinstance(report, Stored):
        known.update((report.group, prefix) for prefix in report.prefixes)
    elif isinstance(report, Removed):
        known.discard((report.group, report.prefix))
    else:
        known.clear()
