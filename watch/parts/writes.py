"""This part shows what steps write into blocks."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kvproof.model.numbered import Some
from kvproof.model.state import NULL, Block, Content, Engine, Key, Request
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest

if TYPE_CHECKING:
    from kvproof.watch.notes import EngineNotes


class Write(NamedTuple):
    """One write of a request into a block of a group, which `holders` hold. `before` is its content
    before, without the first `cut` tokens, and `key` its key then. Its first token has the position
    `first`."""

    watched: WatchedRequest
    group: int
    block: int
    holders: tuple[str, ...]
    cut: int
    first: int
    before: Content | None
    key: Key | None


class Writes(Part):
    """The blocks that requests write into and that are cached, shared or the null block, with all
    requests that hold them. Other writes cannot be wrong."""

    view = Views.WRITES

    def questions(self) -> Iterator[Question]:
        """Ask about one write after the other."""
        event = self.seen.event
        for write in event.writes:
            after = self.slices.contents.seen(write.block, write.watched.tokens, write.cut)
            if write.block == NULL:
                end = write.watched.live.num_computed_tokens
                text = write.watched.tokens.text(write.cut, end)
                after = Content(write.group, (text,))
            if write.before is None and write.key is not None:
                continue  # it may have held the same
            key = _key(self.seen, write.block, write.cut, write.first)
            yield self.question(
                self._engine(write, after, key),
                before=self._engine(write, write.before, write.key),
            )

    def _engine(self, write: Write, content: Content | None, key: Key | None) -> Engine:
        blocks: Any = Some({write.block: Block(len(write.holders), key)})
        table = ((write.block,),)
        return Engine(
            self.cfg.name,
            blocks,
            (),
            memory=(*((None,) * write.block), content),
            requests=tuple(
                Request(name, "", "", 0, 0, tables=table) for name in dict.fromkeys(write.holders)
            ),
        )


def note_writes(seen: "EngineNotes", some: Iterable[WatchedRequest]) -> None:
    """Note what these requests are about to write into blocks."""
    for watched in some:
        start = max(watched.written, watched.hit + watched.external)
        end = watched.live.num_computed_tokens
        for index, group in enumerate(seen.cfg.groups):
            size, table = group.block_size, watched.tables[index]
            columns = range(start // size, min(-(-end // size), len(table)))
            if not group.attention:
                columns = range(max((end - 1) // size, 0), min((end - 1) // size + 1, len(table)))
                if seen.cfg.drafts:
                    continue
            for column in columns if end > start else ():
                _note(seen, watched, index, table[column].block_id, column * size)


def _note(seen: "EngineNotes", watched: WatchedRequest, group: int, block: int, first: int) -> None:
    slices, event = seen.slices, seen.event
    cached = block not in seen.mapped_now and bool(slices.mapped.of(block))
    if block != NULL and not cached and slices.holders.has_one(block):
        return  # it is the request's alone
    holders = slices.holders.of(block)
    cut = first // slices.unit * slices.unit
    before = None if block == NULL else slices.contents.seen(block, watched.tokens, cut)
    key = _key(seen, block, cut, first) if cached else None
    event.writes.append(Write(watched, group, block, holders, cut, first, before, key))


def _key(seen: "EngineNotes", block: int, cut: int, first: int) -> Key | None:
    keys = seen.slices.mapped.of(block)
    return seen.slices.key_text(keys[0], cut, first) if keys else None
