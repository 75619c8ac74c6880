"""Guards of the block pool and the coordinator: which blocks a step may take, give and free."""

from collections import Counter
from collections.abc import Iterator

from kvproof.invariants.arithmetic import first_token_read
from kvproof.invariants.changes import (
    Engines,
    Requests,
    Scheduled,
    alive,
    blocks_of,
    choices,
    requests,
    taken,
)
from kvproof.invariants.check import check
from kvproof.model.because import Excuse, Judged, Reason, because, choice, holds, holds_if, reason
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.events import (
    Admit,
    Choice,
    Complete,
    Compute,
    Evict,
    FinishLoad,
    Preempt,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
)
from kvproof.model.needs import Need
from kvproof.model.numbered import numbered
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, NULL, RUNNING, Engine, Key, Table
from kvproof.model.step import Admission, Step


@check(
    "only a scheduler step allocates blocks",
    part="block pool",
    severity=Severity.LEAK,
    needs=(Need.GAINED_REFERENCES,),
)
def only_a_step_takes_blocks(step: Step) -> Iterator[Judged]:
    """Only the scheduler allocates blocks, in a scheduler step. Every other event may only free
    blocks. A block that is allocated elsewhere is in no block table that the worker receives
    (vllm#48481)."""
    if isinstance(step.event, Schedule):
        return
    for before, after in alive(step):
        right = 0
        for number, now in numbered(after.blocks):
            was = before.blocks[number]
            if number == NULL:
                continue
            if now.refs <= was.refs:
                right += 1
            else:
                yield because(
                    reason(
                        "may_not_allocate",
                        "{event} may not allocate blocks",
                        event=type(step.event).__name__,
                    ),
                    reason(
                        "gained_references",
                        "block {block} of {engine} has {references} references, {before} before",
                        references=now.refs,
                        before=was.refs,
                    ),
                    engine=after.name,
                    block=number,
                )
        yield holds(right)


def _deferred(engine: Engine) -> Counter[int]:
    """The blocks that wait for steps to end, each counted as often as it waits."""
    return Counter(block for _, blocks in engine.deferred for block in blocks)


def _about_choice(engine: str, choice: Choice, block: int, made: Reason) -> Judged:
    """A choice did with a block what it may not do."""
    blocks = reason("block", "block {block} of {engine} ({request})")
    return because(blocks, made, engine=engine, request=choice.request, block=block)


@check(
    "a block is taken only while it is free, and each holder frees it once",
    part="block pool",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.CHOSEN_BLOCKS,),
)
def taken_blocks_were_free(made: Scheduled) -> Iterator[Judged]:
    """If a block is allocated while another request holds it, or is freed once too often, two
    requests write it (vllm#44409, vllm#46240).

    The check follows the choices of a step in order, with the blocks that each choice took and
    freed. The spec permits any free block, and permits a freed block to wait for steps in flight.
    The blocks of copies are not checked here: they are held until the copies are made at the end of
    the step.
    """
    before, after = made.before, made.after
    held = Counter({number: block.refs for number, block in enumerate(before.blocks)})
    for chosen in made.choices:
        for block in blocks_of(chosen, "hit"):
            held[block] += 1
        for block in blocks_of(chosen, "freed"):
            yield holds_if(held[block] >= 1) or _about_choice(
                after.name,
                chosen,
                block,
                reason(
                    "freed",
                    "{choice} frees it, and no request holds it",
                    choice=type(chosen).__name__,
                ),
            )
            held[block] -= 1
        for block in blocks_of(chosen, "taken"):
            yield holds_if(held[block] <= 0) or _about_choice(
                after.name,
                chosen,
                block,
                reason(
                    "taken",
                    "{choice} takes it, and it is in use",
                    choice=type(chosen).__name__,
                ),
            )
            held[block] += 1
    held += _deferred(after)
    held.subtract(_deferred(before))
    copied = {b for c in made.step.effects.copies if c.engine == after.name for b in c[1:]}
    right = 0
    for number, now in enumerate(after.blocks):
        if number in copied or number == NULL:
            continue
        if now.refs == held[number]:
            right += 1
        else:
            yield because(
                reason(
                    "references_held",
                    "after the choices of the step, block {block} of {engine} has "
                    "{references} references",
                    references=held[number],
                ),
                reason(
                    "reference_count", "its reference count is {references}", references=now.refs
                ),
                engine=after.name,
                block=number,
            )
    yield holds(right)


def _serves(cfg: EngineConfig, group: Group, key: str, position: int, admission: Admission) -> bool:
    """Whether a block cached under this prefix may be at this position of the block table. The
    tokens after the block that its hash covers must be the request's tokens too."""
    tokens, first = admission.tokens, position * group.block_size
    if not tokens.startswith(key):
        return False
    prefix = key[: len(key) - cfg.hash_lookahead_tokens]
    end = first + group.block_size
    if not group.attention:
        return first < len(prefix) <= min(end, admission.hit)
    long_enough = len(prefix) >= min(end, admission.hit)
    return first < len(prefix) <= end and long_enough


@check(
    "every block of a hit is cached under a prefix of the request",
    part="coordinator",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.HIT_BLOCKS,),
)
def hit_blocks_are_cached(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """A hit gives a request the blocks that are cached under the request's own prefixes. A block
    that is cached under another prefix, or not cached, belongs to another prompt (vllm#53142).

    A hit that ends inside an attention block may use a block cached under a longer prefix. A Mamba
    state is valid only at the end of the hit.
    """
    cfg = cluster.engine(made.after.name)
    admissions = {a.request: a for a in made.step.effects.admissions}
    for chosen in made.choices:
        if not isinstance(chosen, Admit) or chosen.request not in admissions:
            continue
        admission = admissions[chosen.request]
        for index, blocks in enumerate(chosen.hit):
            for position, block in enumerate(blocks):
                if block == NULL:
                    continue
                prefixes = [k[1] for k, held in admission.cached if k[0] == index and block in held]
                yield holds_if(
                    any(_serves(cfg, cfg.groups[index], p, position, admission) for p in prefixes)
                ) or because(
                    reason(
                        "gets_block",
                        "{request} on {engine} hits {local_hit} tokens and gets "
                        "block {block} at position {position} of group {group}",
                        local_hit=chosen.local_hit,
                        position=position,
                    ),
                    reason(
                        "is_cached",
                        "block {block} is cached as {prefixes:or nothing}",
                        prefixes=prefixes,
                    ),
                    engine=cfg.name,
                    request=chosen.request,
                    group=index,
                    block=block,
                )


def _given(step: Step, engine: Engine, name: str) -> tuple[set[int], set[int], bool]:
    """The blocks that the choices of a step gave to a request, the blocks that they freed, and
    whether the request started again."""
    given, lost, restarted = set[int](), set[int](), False
    event = step.event
    if not isinstance(event, Schedule) or event.engine != engine.name:
        return given, lost, restarted
    for chosen in event.chose or ():
        if name in (chosen.request, getattr(chosen, "needy", "")):
            lost |= set(blocks_of(chosen, "freed"))
        if chosen.request == name:
            gives_back = isinstance(chosen, FinishLoad) and any(chosen.freed)
            restarted |= isinstance(chosen, Preempt) or gives_back
            given |= {*blocks_of(chosen, "hit"), *blocks_of(chosen, "taken")}
    return given, lost, restarted


def _wrong(
    old: Table, new: Table, given: set[int], lost: set[int], copies: set[int]
) -> Reason | None:
    """What is wrong with a table; None if nothing is wrong."""
    foreign = set(new) - set(old) - given - {NULL}
    if foreign:
        return reason("not_given", "no choice gave it blocks {foreign}", foreign=sorted(foreign))
    gone = set(old) - set(new) - lost - copies - {NULL}
    if gone and (given or lost or len(new) >= len(old)):
        return reason("not_freed", "no choice freed its blocks {gone}", gone=sorted(gone))
    return None


def _moved(old: Table, new: Table, copies: set[int]) -> Reason | None:
    for position, (was, now) in enumerate(zip(old, new, strict=False)):
        if now not in (was, NULL) and was not in copies:
            return reason(
                "moved",
                "position {position} changed from block {was} to block {now}",
                position=position,
                was=was,
                now=now,
            )
    return None


def _tables(request: Requests) -> Iterator[tuple[int, Table, Table]]:
    if request.before is not None and request.after is not None and request.after.tables:
        old = request.before.tables or ((),) * len(request.after.tables)
        yield from (
            (i, *pair) for i, pair in enumerate(zip(old, request.after.tables, strict=True))
        )


@check(
    "a block table changes only by the blocks that the choices of the step took and freed",
    part="coordinator",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.CHOSEN_BLOCKS,),
)
def table_keeps_its_blocks(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """The worker has its own copy of each block table and receives only the new blocks. If a block
    changes its position, or a block appears without a choice, the scheduler and the worker use
    different blocks.

    A table grows by blocks that a choice of the step hit or took. It loses blocks that a choice
    freed. In attention groups a block keeps its position until it is freed. Outside a step, a table
    only loses blocks.
    """
    in_step = isinstance(step.event, Schedule)
    for engines in alive(step):
        before, after = engines
        if before.requests is after.requests:
            continue
        copies = {c.source for c in step.effects.copies if c.engine == after.name}
        for request in requests(engines):
            if request.before and request.after and request.before.tables == request.after.tables:
                continue
            given, lost, restarted = _given(step, after, request.name)
            for index, old, new in _tables(request):
                freed = lost if in_step else set(old)
                wrong = None if restarted else _wrong(old, new, given, freed, copies)
                if (
                    wrong is None
                    and not restarted
                    and cluster.engine(after.name).groups[index].attention
                ):
                    wrong = _moved(old, new, copies)
                yield holds_if(wrong is None) or because(
                    reason(
                        "table_was",
                        "the block table of {request} in group {group} of {engine} was {old}",
                        old=old,
                    ),
                    reason("table_is", "{wrong}, and it is now {new}", wrong=wrong, new=new),
                    engine=after.name,
                    request=request.name,
                    group=index,
                )


def _taken_or_reset(step: Step, before: Engine) -> set[int]:
    """The blocks whose cache entries an event must, or may, drop: they get other tokens, or are to
    be forgotten."""
    event = step.event
    if isinstance(event, Evict):
        return {event.block}
    if isinstance(event, ResetPrefixCache | ResetRunning):
        return set(range(len(before.blocks)))
    return taken(step, before.name)


def _served_elsewhere(
    cfg: EngineConfig, step: Step, engines: Engines, key: Key, block: int
) -> bool:
    """Whether a hit finds the same after the step: in a block of a longer prefix, in another block
    of this prefix, or in a copy. The target of a copy may have had the same entry before."""
    longer = cfg.groups[key[0]].attention and _has_longer(engines.after, key, block)
    elsewhere = set(engines.after.blocks_for(key)) - set(engines.before.blocks_for(key))
    copied = {c.target for c in step.effects.copies if c[:2] == (engines.after.name, block)}
    return longer or bool(elsewhere) or bool(copied & set(engines.after.blocks_for(key)))


def _has_longer(after: Engine, key: Key, block: int) -> bool:
    """Whether a block is now cached under a longer prefix."""
    return any(k[0] == key[0] and k[1].startswith(key[1]) for k in after.blocks[block].keys)


def _why_lost(step: Step, engines: Engines, key: Key, block: int) -> Iterator[Excuse]:
    """Why an entry may be lost although its block still has the content."""
    event, before = step.event, engines.before
    failed = before.find(event.failed) if isinstance(event, Complete) else None
    if failed is not None and any(block in table for table in failed.tables):
        yield choice("a load of its request failed, and the tokens are computed again")
    if any(isinstance(c, Preempt) and block in blocks_of(c, "freed") for c in choices(step)):
        yield choice("its request is preempted in this step, and may not have computed it")
    if _has_longer(engines.after, key, block):
        yield choice("its block goes on, and holds a later state")


@check(
    "a cache entry is lost only if its block is allocated, evicted, reset or replaced",
    part="block pool",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.LOST_ENTRIES,),
)
def entry_is_lost_with_its_block(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """If vLLM drops a cache entry although the block still holds the content, later prompts miss a
    possible prefix hit (vllm#44409: the hit rate fell to 0 %).

    The spec permits the loss of an entry when its block is allocated again, when an `Evict` event
    names its block, at a reset, and when another entry replaces it: a longer prefix in the same
    attention block, or a copy of the block. It excuses the loss after a failed load, in a
    preemption, and of a state whose block goes on.
    """
    for engines in alive(step):
        before, after = engines
        if before.cached == after.cached:
            continue
        cfg = cluster.engine(after.name)
        left = {(key, block) for key, blocks in after.cached for block in blocks}
        given_up, right = _taken_or_reset(step, before), 0
        for key, blocks in before.cached:
            for block in blocks:
                if (
                    (key, block) in left
                    or block in given_up
                    or _served_elsewhere(cfg, step, engines, key, block)
                ):
                    right += 1
                    continue
                yield because(
                    reason(
                        "is_cached",
                        "block {block} of {engine} is cached as prefix {key:quoted} "
                        "of group {group}, and {event} neither allocates nor evicts "
                        "it",
                        key=key[1],
                        event=type(step.event).__name__,
                    ),
                    reason("entry_is_lost", "the cache has lost this entry"),
                    excuses=_why_lost(step, engines, key, block),
                    engine=after.name,
                    group=key[0],
                    block=block,
                )
        yield holds(right)


@check(
    "a step takes from the requests that it computes each block that a window has passed",
    part="coordinator",
    severity=Severity.LEAK,
    needs=(Need.LEFT_BEHIND, Need.COMPUTED),
)
def passed_blocks_are_freed(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """A window reads a fixed number of tokens. Blocks of earlier tokens serve no step, and keep
    other requests waiting (compare vllm#39734). `no_more_is_held_than_is_read` permits a request as
    many blocks as its longest step needs; here each block that is passed counts, from the next step
    of the request on. Tokens of steps in flight are not passed: their output may take them back.
    """
    groups = cluster.engine(made.after.name).groups
    for chosen in made.choices:
        before, after = made.before.find(chosen.request), made.after.find(chosen.request)
        # Cannot be judged: a request that is admitted in this step, or that loses all its blocks.
        if not isinstance(chosen, Compute) or not before or not after or before.status != RUNNING:
            continue
        in_flight = sum(f.tokens for f in made.before.flights(before.id) if f.fate == COUNTS)
        for index, (group, table) in enumerate(zip(groups, after.tables, strict=False)):
            if group.kind != "window":
                continue
            first = first_token_read(group, before.computed - in_flight)
            kept = [block for block in table[: first // group.block_size] if block != NULL]
            yield holds_if(not kept) or because(
                reason(
                    "reads_from",
                    "{request} on {engine} reads no token before {first} in group {group}",
                    first=first,
                ),
                reason("keeps_blocks", "it keeps blocks {kept} of these tokens", kept=kept),
                engine=made.after.name,
                request=before.id,
                group=index,
            )
