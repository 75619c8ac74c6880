"""The KV events of the current step: what an engine reports about its cache (see `kv_events`).

Sources: `BlockPool.cache_full_blocks`, `_maybe_evict_cached_block`, `reset_prefix_cache` and its
`kv_event_queue` of vLLM V1.
"""

from collections.abc import Sequence

from kvproof.model.kv_events import Report, Stored
from kvproof.model.reference.blocks import groups
from kvproof.model.state import Engine


def reporting(engine: Engine, *reports: Report) -> Engine:
    """The engine with these reports added, if KV events are on."""
    if engine.reports is None:
        return engine
    return engine._replace(reports=(*engine.reports, *reports))


def reporting_stored(
    engine: Engine,
    group: int,
    size: int,
    ahead: int,
    tokens: str,
    looked_at: range,
    cached: Sequence[int],
) -> Engine:
    """The engine with the reports of newly cached blocks. `looked_at` has the positions of the
    processed blocks, `cached` those that were cached. `size` is the group's block size in tokens; a
    hash covers `ahead` tokens after its block."""
    if engine.reports is None:
        return engine
    for span, named in report_spans(looked_at, tuple(cached)):
        ends = [(position + 1) * size for position in named]
        start, end = span.start * size, span.stop * size
        report = Stored(
            group,
            groups.hashed_prefix(tokens, start, ahead) if start else "",
            tokens[start:end],
            tuple(groups.hashed_prefix(tokens, end, ahead) for end in ends),
            tuple(tokens[end : end + ahead] for end in ends) if ahead else (),
        )
        engine = reporting(engine, report)
    return engine


def reporting_stored_inside(engine: Engine, group: int, prefix: str, unit: int) -> Engine:
    """The engine with the report of a block that was cached under a prefix that ends inside the
    block. The report has the last `unit` tokens: those after the previous prefix with a hash."""
    return reporting(engine, Stored(group, prefix[:-unit], prefix[-unit:], (prefix,)))


def reported(engine: Engine) -> tuple[Engine, tuple[Report, ...]]:
    """The engine without its reports, and the reports."""
    if not engine.reports:
        return engine, ()
    return engine._replace(reports=()), engine.reports


def report_spans(
    looked_at: range,  # noqa: ARG001
    cached: tuple[int, ...],
) -> tuple[tuple[range, tuple[int, ...]], ...]:
    """The reports for the cached blocks among `looked_at`: for each report the positions that it
    spans, and the positions that it names. There is one report for each run of consecutive blocks
    (vllm#44451)."""
    starts = [p for p in cached if p - 1 not in cached]
    ends = [p + 1 for p in cached if p + 1 not in cached]
    spans = (range(*ends_of) for ends_of in zip(starts, ends, strict=True))
    return tuple((span, tuple(span)) for span in spans)
