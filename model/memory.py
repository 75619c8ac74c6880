"""Symbolic memory: the content of each physical block, and what a step reads and writes.

In a Mamba group a step reads before it writes, because it advances the state in place. In an
attention group it writes before it reads, because a token attends to itself and to tokens that
other requests of the same step write.
"""

from collections.abc import Iterable, Iterator, Sequence

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.state import DRAFT, NULL, SAMPLED, Content, Engine, Request, Table
from kvproof.model.step import Read

Memory = list[Content | None]


def write(memory: Memory, block: int, group: int, size: int, slots: dict[int, str]) -> None:
    """Write prefixes into some slots of a block. Content of another group is erased first."""
    old = memory[block]
    held = list(old.slots) if old is not None and old.group == group else []
    held += [""] * (size - len(held))
    for slot, prefix in slots.items():
        held[slot] = prefix
    memory[block] = Content(group, tuple(held))


def width(cfg: config.EngineConfig, group: config.Group) -> int:
    """The number of slots of a block: one for a state, or one for each token. A group with drafter
    layers has one more where hashes cover the next token: the KV of the drafter's layers for the
    last token in the block."""
    if not group.attention:
        return 1
    return group.block_size + (cfg.hash_lookahead_tokens if group.eagle else 0)


def slot(memory: Sequence[Content | None], block: int, group: int, index: int) -> str | None:
    """The prefix in one slot of a block, None where it holds content of another group."""
    content = memory[block]
    if content is None or content.group != group:
        return None
    return content.slots[index] if index < len(content.slots) else ""


def entry(table: Table, position: int) -> int:
    """The block at a position of a block table. After the end of the table a worker reads padding,
    which is the null block."""
    return table[position] if position < len(table) else NULL


def _write_attention(
    memory: Memory, group: int, size: int, table: Table, tokens: str, start: int, end: int
) -> None:
    for position in range(start, end):
        block = entry(table, position // size)
        write(memory, block, group, size, {position % size: tokens[: position + 1]})


def _write_next(
    request: Request, memory: Memory, group: int, size: int, start: int, end: int, reach: int
) -> None:
    """Write the drafter's KV for the last token of each block: the prefix that ends with the next
    token. The next token is known, or this step samples it; after `end` it is a draft token."""
    tokens = (request.tokens + SAMPLED)[: end + 1].ljust(reach + 1, DRAFT)
    for position in range(start, reach):
        if position % size == size - 1:
            block = entry(request.tables[group], position // size)
            write(memory, block, group, size + 1, {size: tokens[: position + 2]})


def first_seen(at: int, window: int) -> int:
    """The first position that the token at position `at` attends to. A window counts the token
    itself. This function describes the layers, so it does not use `counts`, which describes the
    blocks that may be freed."""
    return max(at - (window - 1), 0)


def _read_attention(
    request: Request,
    engine: str,
    memory: Memory,
    group: int,
    cfg: config.Group,
    start: int,
    end: int,
) -> Iterable[Read]:
    size = cfg.block_size
    tokens = request.tokens.ljust(end, DRAFT)
    first = first_seen(start, cfg.window) if cfg.kind == "window" else 0
    for position in range(first, end):
        block = entry(request.tables[group], position // size)
        found = slot(memory, block, group, position % size)
        expected = tokens[: position + 1]
        yield Read(engine, request.id, group, block, position % size, expected, found)


def _reading_ahead(request: Request) -> Request:
    """The request with a sampled token for each token that it computes from and does not know
    yet."""
    missing = request.computed - len(request.tokens)
    return request._replace(output=request.output + SAMPLED * missing) if missing > 0 else request


def used(cfg: config.EngineConfig, request: Request, tokens: int) -> tuple[int, ...]:
    """The blocks that a step reads or writes when it computes the last `tokens` tokens of a
    request. With drafts the step may read from and write to any state block, starting at the block
    of the token before."""
    start, end = request.computed - tokens, request.computed
    blocks = set()
    for table, group in zip(request.tables, cfg.groups, strict=True):
        size = group.block_size
        first = first_seen(start, group.window) if group.window else 0
        if not group.attention:
            first = max(start - 1, 0)
        touched = {entry(table, p // size) for p in range(first, end)}
        if not group.attention and not cfg.drafts:
            touched = {entry(table, first // size), entry(table, (end - 1) // size)}
        if not group.attention and cfg.drafts:
            scratch = (end - 1) // size + 1 + cfg.drafts
            touched = {entry(table, column) for column in range(first // size, scratch)}
        blocks |= touched
    return tuple(sorted(blocks - {NULL}))


def _states(request: Request, table: Table, size: int) -> Iterator[tuple[int, str]]:
    """The states that a step writes, with their blocks: the state of the known tokens in the
    running block, and the state after each draft token in the blocks after it. Where the known
    tokens end at a block boundary, the drafts have passed it: that state is also written to its own
    block."""
    end, known = request.computed, min(request.computed, len(request.tokens))
    tokens = request.tokens.ljust(end, DRAFT)
    running = (end - 1) // size
    for draft in range(end - known + 1):
        yield entry(table, running + draft), tokens[: known + draft]
    if known < end and known % size == 0:
        yield entry(table, known // size - 1), tokens[:known]


def run(
    cfg: config.EngineConfig, engine: Engine, scheduled: Sequence[tuple[Request, int]]
) -> tuple[Engine, tuple[Read, ...]]:
    """Execute one step. `scheduled` has, for each request, the number of tokens that end at its
    `computed`. Where steps overlap, earlier steps sampled the tokens that are not known yet; with a
    drafter these are draft tokens. In a group with drafter layers the step also writes the
    lookahead slots, with content that no request may read."""
    memory = list(engine.memory)
    if cfg.overlaps and not cfg.drafts:
        scheduled = [(_reading_ahead(request), tokens) for request, tokens in scheduled]
    reads: list[Read] = []
    states: list[tuple[int, int, str]] = []
    for index, group in enumerate(cfg.groups):
        size = group.block_size
        for request, tokens in scheduled:
            table = request.tables[index]
            start, end = request.computed - tokens, request.computed
            if group.attention:
                reach = end + cfg.lookahead if group.eagle else end
                tokens_written = request.tokens[:end].ljust(reach, DRAFT)
                _write_attention(memory, index, size, table, tokens_written, start, reach)
                if width(cfg, group) > size:
                    _write_next(request, memory, index, size, start, end, reach)
                continue
            if start > 0:
                at_computed = entry(table, (start - 1) // size)
                block = request.states[index] if request.states else at_computed
                found = slot(memory, block, index, 0)
                expected = request.tokens[:start]
                reads.append(Read(engine.name, request.id, index, block, 0, expected, found))
            states.extend((index, *state) for state in _states(request, table, size))
        for request, tokens in scheduled:
            if group.attention:
                start, end = request.computed - tokens, request.computed
                reads.extend(
                    _read_attention(request, engine.name, memory, index, group, start, end)
                )
    for index, block, prefix in states:
        write(memory, block, index, 1, {0: prefix})
    return engine._replace(memory=tuple(memory)), tuple(reads)


def load(cfg: config.EngineConfig, engine: Engine, request: Request) -> Engine:
    """Fill a request's blocks with the external tokens of its last admission, as a store does
    before the step runs. The null block is not filled."""
    memory = list(engine.memory)
    start, end = request.hit, request.hit + request.external
    for index, group in enumerate(cfg.groups):
        size, table = group.block_size, request.tables[index]
        first = start if group.attention else end - 1
        for position in range(first, end):
            block = entry(table, position // size)
            slot_number = position % size if group.attention else 0
            if block != NULL:
                slots = {slot_number: request.tokens[: position + 1]}
                write(memory, block, index, size if group.attention else 1, slots)
    return engine._replace(memory=tuple(memory))


def wiped(engine: Engine, blocks: Iterable[int]) -> Engine:
    """The engine with these blocks erased, as if they had never been written."""
    memory = list(engine.memory)
    for block in blocks:
        memory[block] = None
    return engine._replace(memory=tuple(memory))


def copied(engine: Engine, pairs: Iterable[tuple[int, int]]) -> Engine:
    """Copy whole blocks of an engine, from the first to the second block of each pair, all at once:
    each copy has the content from before all copies (`copy_kv_cache_blocks_inplace`)."""
    memory = list(engine.memory)
    for source, target in pairs:
        memory[target] = engine.memory[source]
    return engine._replace(memory=tuple(memory))


def copy(
    source_cfg: config.EngineConfig,
    sink_cfg: config.EngineConfig,
    source: Engine,
    sink: Engine,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Engine:
    """Copy kernel blocks from the sender's memory to the receiver's, for each group and pair by
    pair."""
    memory = list(sink.memory)
    for index, (local, remote) in enumerate(pairs):
        group = sink_cfg.groups[index]
        for here, there in zip(local, remote, strict=False):
            if not group.attention:
                held = slot(source.memory, there, index, 0)
                write(memory, here, index, 1, {0: held or ""})
                continue
            width = sink_cfg.kernel_tokens(index)
            block, part = map(int, counts.logical_block(here, sink_cfg.physical_per_logical))
            origin, origin_part = map(
                int, counts.logical_block(there, source_cfg.physical_per_logical)
            )
            slots = {
                part * width + k: slot(source.memory, origin, index, origin_part * width + k) or ""
                for k in range(width)
            }
            write(memory, block, index, group.block_size, slots)
    return sink._replace(memory=tuple(memory))
