"""How a request gets the blocks of a choice: the first blocks of the model's free queue, or the
blocks of a recorded choice."""

from typing import NamedTuple

from kvproof.model import block_lists, config
from kvproof.model.arithmetic import counts
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Lists
from kvproof.model.reference.blocks import allocation, pool
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import Engine, Request


class Grown(NamedTuple):
    """An engine after a request has grown, and its new blocks: the blocks of the hit, the blocks
    for the connector's tokens (`brought`), and the blocks for the tokens to compute (`taken`)."""

    engine: Engine
    request: Request
    hit: Lists = ()
    brought: Lists = ()
    taken: Lists = ()

    @property
    def from_queue(self) -> Lists:
        """All blocks that were taken from the free queue."""
        return block_lists.both(self.brought, self.taken)


def grow(
    cfg: config.EngineConfig, engine: Engine, request: Request, hit: Hit | None, end: int
) -> Grown:
    """Grow a request to `end` tokens. A request with a hit is admitted first."""
    given: Lists = ((),) * len(cfg.groups)
    brought = given
    if hit is not None:
        engine, request = allocation.admit(cfg, engine, request, hit)
        sizes = (group.block_size for group in cfg.groups)
        lengths = [int(counts.blocks_for_tokens(*g)) for g in zip(hit.own, sizes, strict=True)]
        given, brought = block_lists.split(request.tables, lengths)
    tables, copies = request.tables, len(engine.copies)
    loads = end == request.computed
    if not loads or cfg.drafts:
        engine, request = allocation.grow(
            cfg, engine, request, end, fresh=hit is not None, loads=loads
        )
    taken = block_lists.taken(tables, request.tables, engine.copies[copies:])
    return Grown(engine, request, given, brought, taken)


def follow(
    cfg: config.EngineConfig,
    engine: Engine,
    request: Request,
    hit: Hit | None,
    end: int,
    recorded: Lists,
) -> Grown:
    """Grow a request with the blocks of a recorded choice, if it has blocks. Raises NotAllowed
    where their number is wrong, or where they are not free."""
    own = grow(cfg, engine, request, hit, end)
    if not recorded or own.engine.dead != engine.dead or own.from_queue == recorded:
        return own
    for index, (ours, theirs) in enumerate(zip(own.from_queue, recorded, strict=True)):
        if len(ours) != len(theirs):
            raise NotAllowed(
                f"{request.id} takes {len(theirs)} blocks in group {index} but needs {len(ours)}"
            )
        for block in theirs:
            if block not in engine.free:
                raise NotAllowed(f"{request.id} takes block {block}, which is not free")
    places = {
        ours: theirs
        for group in zip(own.from_queue, recorded, strict=True)
        for ours, theirs in zip(*group, strict=True)
    }
    first = [places[block] for block in engine.free if block in places]
    grown = grow(cfg, pool.with_first_free(engine, first), request, hit, end)
    if grown.from_queue != recorded:
        raise NotAllowed(f"{request.id} takes a block twice, or takes a block of its hit")
    return grown
