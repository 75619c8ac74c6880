"""This module follows what the worker of a watched engine reads and writes, as the scheduler's
outputs say it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kvproof.live import adapt
from kvproof.model.step import Read
from kvproof.watch.contents import Contents
from kvproof.watch.slices import Slices, WatchedRequest

Tables = Sequence[Sequence[int]]
"""Block ids, by group."""


class StartedRequest(NamedTuple):
    """A request that starts in a step, for which the worker gets whole block tables: a new one, one
    whose load is over, or one that was preempted. `computed` is the number of its tokens that are
    computed before the step, and `reads` what it reads of them and does not find."""

    watched: WatchedRequest
    tables: Tables
    computed: int
    reads: list[Read]


class WatchedWorker:
    """Note in `contents` what blocks hold. What a request has written is noted when its blocks
    change or are cached: before, nobody else can read it."""

    def __init__(self, slices: Slices, contents: Contents) -> None:
        self.slices = slices
        self.cfg = slices.cfg
        self.contents = contents
        self.states = not self.cfg.drafts and not all(g.attention for g in self.cfg.groups)

    def execute(
        self,
        output: Any,
        admitted: Iterable[WatchedRequest],
        touched: Iterable[WatchedRequest],
        requests: Mapping[str, WatchedRequest],
    ) -> list[StartedRequest]:
        """Carry out one step, and return the requests that begin in it. Copies and loads come
        first; a state is read before the step writes, attention after it."""
        for source, target in adapt.block_copies(output, self.cfg.partial_block_hits):
            self.contents.copy(source, target)
        scheduled = output.num_scheduled_tokens
        for watched in admitted:
            if watched.external and watched.live.request_id in scheduled:
                self.load(watched, watched.hit + watched.external)
        started, reads = [], self.slices.reads
        for name, tables in _whole_tables(output):
            if name in requests:
                watched = requests[name]
                computed = watched.live.num_computed_tokens - scheduled[name]
                found = list(reads(watched, tables, computed, attention=False))
                started.append(StartedRequest(watched, tables, computed, found))
        for watched in touched:
            name = watched.live.request_id
            if name in scheduled:
                if self.states:
                    self._passed(watched, watched.live.num_computed_tokens - scheduled[name])
                self.write_up(watched)
        for each in started:
            each.reads.extend(reads(each.watched, each.tables, each.computed, attention=True))
        return started

    def load(self, watched: WatchedRequest, end: int) -> None:
        """Note that a connector has filled the blocks that were taken for it, up to `end` tokens.
        In a group whose own hit is shorter than that of the request, some of them lie before the
        hit."""
        for index, ids in enumerate(watched.loads):
            columns = (c for c, b in enumerate(watched.tables[index]) if b.block_id in ids)
            first = next(columns, None)
            if self.cfg.groups[index].attention and first is not None:
                start = first * self.cfg.groups[index].block_size
                self._fill(watched, index, start, min(watched.hit, end))
        self._write(watched, watched.hit, end)

    def write_up(self, watched: WatchedRequest) -> None:
        """Note what a request has written since the last time."""
        end = watched.live.num_computed_tokens
        if end < watched.written:  # drafts were rejected, or a load has failed
            for group, table in zip(self.cfg.groups, watched.tables, strict=True):
                for block in table[end // group.block_size :] if group.attention else ():
                    self.contents.undo(block.block_id, end)
            watched.written = end
        elif end > watched.written:
            self._write(watched, watched.written, end)

    def _passed(self, watched: WatchedRequest, begin: int) -> None:
        """Note the state from which a step goes on. The steps before it took no block, so they are
        not noted: the last of them has left its state in the block of its last token."""
        if begin > watched.written:
            self._write(watched, watched.written, begin)

    def _write(self, watched: WatchedRequest, start: int, end: int) -> None:
        """Note the tokens from `start` on. The KV of a token that is not known yet is noted when it
        is known: nobody can read it before."""
        contents, tokens = self.contents, watched.tokens
        known = watched.written = min(end, len(tokens))
        for index, group in enumerate(self.cfg.groups):
            size, table = group.block_size, watched.tables[index]
            if not group.attention:
                column = (end - 1) // size
                if column < len(table) and not self.cfg.drafts:
                    contents.state(table[column].block_id, index, tokens, end)
                continue
            self._fill(watched, index, start, known)

    def _fill(self, watched: WatchedRequest, index: int, start: int, end: int) -> None:
        """Note the KV of the tokens from `start` to `end` of an attention group."""
        size, table = self.cfg.groups[index].block_size, watched.tables[index]
        for column in range(start // size, min(-(-end // size), len(table))):
            block, first = table[column], column * size
            if not block.is_null:
                last = min(end, first + size)
                self.contents.write(block.block_id, index, watched.tokens, max(start, first), last)


def _whole_tables(output: Any) -> Iterator[tuple[str, Tables]]:
    """Return the requests for which the worker gets whole block tables, with these tables."""
    for new in output.scheduled_new_reqs:
        yield new.req_id, new.block_ids
    cached = output.scheduled_cached_reqs
    if cached.resumed_req_ids:
        for name, tables in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                yield name, tables
