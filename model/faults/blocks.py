"""The pool of blocks: references, the free queue, the hash map and the number of blocks that a
request is predicted to need."""

from collections import Counter
from collections.abc import Iterable

from kvproof.model.arithmetic.algebra import Num, div, max_
from kvproof.model.counting_abstraction.pool import Pool, PoolSizes, moved
from kvproof.model.faults.fault import fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.pool import release, with_blocks
from kvproof.model.state import NULL, Engine, Request


@fault(
    "hit blocks are put into the block table without a reference",
    origin="vllm#44409",
    in_vllm="BlockPool.touch",
    replaces="reference.blocks.pool:touch",
    breaks=("references_are_exact", "no_block_free_and_held"),
    cluster="full",
)
def untouched_hits(engine: Engine, _blocks: Iterable[int]) -> Engine:
    """vllm#44409 (vllm#33775): a hit block is still in the free queue when another group
    allocates blocks. The allocation takes the hit block."""
    return engine


@fault(
    "a freed block loses two references",
    origin="vllm#42571",
    in_vllm="BlockPool.free_blocks",
    replaces="reference.blocks.pool:release",
    breaks=("pool_adds_up", "references_are_exact"),
    cluster="full",
)
def double_free(engine: Engine, blocks: Iterable[int]) -> Engine:
    """vllm#42571: one batch of freed blocks has the same block twice. Here each block of the
    batch loses one reference more, before it is freed."""
    freed = tuple(blocks)
    once = {
        number: engine.blocks[number]._replace(refs=engine.blocks[number].refs - count)
        for number, count in Counter(freed).items()
        if number != NULL
    }
    return release(with_blocks(engine, once), freed)


def outside_the_queue_in_counts(sizes: PoolSizes, pool: Pool, taken: Num, freed: Num) -> Pool:
    """The free queue only becomes shorter."""
    after = moved(sizes, pool, taken, freed)
    return after._replace(free=after.free - freed)


@fault(
    "a block without references is not put into the free queue",
    origin="sglang#16067",
    in_vllm="BlockPool.free_blocks",
    replaces="reference.blocks.pool:release",
    also_replaces={"counting_abstraction.pool:moved": outside_the_queue_in_counts},
    breaks=("pool_adds_up", "all_blocks_return"),
    cluster="full",
)
def freed_block_leaks(engine: Engine, blocks: Iterable[int]) -> Engine:
    """A freed block does not return to the pool (sglang#16067, there a Mamba slot). The pool
    becomes smaller with every request. Here each block loses its reference, and none is put into
    the free queue."""
    return release(engine, blocks)._replace(free=engine.free)


@fault(
    "the blocks of a request are freed from the front, not from the tail",
    origin="KVCacheManager.free",
    replaces="reference.blocks.pool:release_all",
    breaks="unneeded_blocks_are_reused_first",
    cluster="full",
)
def prefix_is_freed_first(engine: Engine, request: Request) -> Engine:
    """The blocks of a request are freed from the front. The first block of its prompt is then
    evicted first, and without it no other can be hit."""
    for table in request.tables:
        engine = pool.release(engine, table)
    return engine


@fault(
    "a freed block joins the tail of the free queue, also if it is not cached",
    origin="vllm#42656",
    replaces="reference.blocks.pool:release",
    breaks=("uncached_blocks_are_reused_at_once", "unneeded_blocks_are_reused_first"),
    cluster="window",
)
def uncached_blocks_go_last(engine: Engine, blocks: Iterable[int]) -> Engine:
    """vllm#42656: all freed blocks join the tail of the free queue, so that blocks which can be
    hit are evicted while blocks without a key are free. With prefix caching off, a block that
    was just used is taken last (vllm#51482)."""
    changed = dict(enumerate(engine.blocks))
    freed: list[int] = []
    for number in blocks:
        if number != NULL:
            changed[number] = changed[number]._replace(refs=changed[number].refs - 1)
            freed += [number] * (changed[number].refs <= 0)
    return pool.with_blocks(engine, changed)._replace(free=(*engine.free, *freed))


@fault(
    "a block that is allocated to a new owner stays in the hash map under its old key",
    origin="vllm#49125",
    in_vllm="BlockPool._maybe_evict_cached_block",
    replaces="reference.blocks.pool:forget_key",
    breaks=("hash_map_is_sound", "cached_block_holds_its_key"),
    cluster="full-evicting",
)
def evicted_key_stays(engine: Engine, *_: object) -> Engine:
    """Compare vllm#49125: an entry of the hash map outlives the content of its block."""
    return engine


@fault(
    "no block is allocated for tokens that do not fill a block",
    origin="vllm#46892",
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    replaces="arithmetic.counts:attention_blocks_predicted",
    breaks=("null_block_is_nobody", "writer_is_alone"),
    cluster="full",
)
def growth_rounds_down(end: Num, block_size: Num, held_blocks: Num, skipped_blocks: Num) -> Num:
    """The prediction for a request is too low (compare vllm#46892), and so is the allocation.
    The tokens of its last block are written to the null block. Here only full blocks are
    counted."""
    return max_(div(end, block_size) - max_(held_blocks, skipped_blocks), 0)


@fault(
    "the prediction does not include hit blocks that are in the free queue",
    origin="vllm#46892",
    in_vllm="SingleTypeKVCacheManager.get_num_blocks_to_allocate",
    replaces="arithmetic.counts:blocks_from_queue",
    breaks="predicted_is_taken",
    cluster="full",
)
def prediction_forgets_hits(new_blocks: Num, _idle: Num) -> Num:
    """Compare vllm#46892: the scheduler compares another number with the free blocks than the
    number of blocks that it takes."""
    return new_blocks


@fault(
    "the blocks of an ended request are freed while a step in flight still writes them",
    origin="vllm#45357",
    in_vllm="Scheduler._free_request_blocks",
    replaces="reference.in_flight:free_behind_steps",
    breaks="settled_frees",
    cluster="pd-async",
)
def frees_before_steps_end(engine: Engine, request: Request) -> Engine:
    """vllm#45357: a request ended with the output of step N while step N + 1 still wrote its
    blocks. The blocks were free at once, and the load of another request filled them at the same
    time."""
    return pool.release_all(engine, request)


@fault(
    "the blocks of an ended request wait for one more step than is in flight",
    origin="vllm#45357",
    in_vllm="Scheduler._free_request_blocks",
    replaces="reference.in_flight:free_behind_steps",
    breaks="idle_engine_keeps_nothing",
    cluster="pd-async",
)
def blocks_wait_for_one_more_step(engine: Engine, request: Request) -> Engine:
    """The blocks of an ended request wait for the steps in flight (vllm#45357). If they wait for
    one step more than there is, an engine without further requests never frees them."""
    blocks = tuple(b for table in request.tables for b in table if b != NULL)
    if not blocks:
        return engine
    return engine._replace(deferred=(*engine.deferred, (len(engine.steps) + 1, blocks)))
