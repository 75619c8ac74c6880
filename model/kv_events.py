"""What an engine tells others of its cache (KV events), and what a listener makes of it.

A listener, such as a router, keeps a mirror: the set of keys it takes to be cached. What is stored
adds keys, what is removed takes one away, and a reset empties it. How many blocks are cached under
a key is not told.

Sources: `BlockPool.cache_full_blocks`, `_maybe_evict_cached_block` and `reset_prefix_cache`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kvproof.model.reference.rules import Rules
    from kvproof.model.state import Engine

Keys: TypeAlias = tuple[tuple[int, str], ...]
"""Cache keys, sorted."""


class Stored(NamedTuple):
    """Blocks of one group were cached, under these prefixes. `tokens` are those of the blocks, and
    `parent` the prefix before them."""

    group: int
    parent: str
    tokens: str
    prefixes: tuple[str, ...]


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


def telling(engine: "Engine", *reports: Report) -> "Engine":
    """The engine with more to tell, where it tells anything."""
    if engine.reports is None:
        return engine
    return engine._replace(reports=(*engine.reports, *reports))


def stored(
    engine: "Engine",
    group: int,
    size: int,
    tokens: str,
    looked_at: range,
    cached: Sequence[int],
    rules: "Rules",
) -> "Engine":
    """The engine after blocks at the positions `looked_at` were cached, or those of them that are.
    `size` is the group's block size in tokens."""
    if engine.reports is None:
        return engine
    for span, named in rules.report_spans(looked_at, tuple(cached)):
        prefixes = tuple(tokens[: (position + 1) * size] for position in named)
        start, end = span.start * size, span.stop * size
        engine = telling(engine, Stored(group, tokens[:start], tokens[start:end], prefixes))
    return engine


def stored_inside(engine: "Engine", group: int, prefix: str, unit: int) -> "Engine":
    """The engine after a block was cached under a prefix that ends inside it. What is told are the
    tokens since the last prefix before it that has a hash, `unit` tokens."""
    return telling(engine, Stored(group, prefix[:-unit], prefix[-unit:], (prefix,)))


def told(engine: "Engine") -> tuple["Engine", tuple[Report, ...]]:
    """The engine when all it had to tell was heard, and what that was."""
    if not engine.reports:
        return engine, ()
    return engine._replace(reports=()), engine.reports
