"""What must be true of the content of blocks: what is read, written, cached and erased."""

from collections.abc import Iterator

from kvproof.invariants.changes import Scheduled, taken
from kvproof.invariants.check import check
from kvproof.invariants.parties import filled_by, given_to_connector
from kvproof.model.because import Judged, Reason, because, holds, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Admit, Complete, Compute, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LOADING, NULL, Engine, Key
from kvproof.model.step import Step


@check(
    "a request attends only to the KV of its own prefix",
    origin="vllm#48633",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.TOKEN_READS,),
)
def request_reads_its_own_prefix(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A KV transfer paired blocks from the wrong end, and D's blocks received the KV of other
    tokens (vllm#48633). All counters were correct, and the answer was wrong."""
    right = 0
    for read in step.effects.reads:
        attention = cluster.engine(read.engine).groups[read.group].attention
        if not attention or read.block == NULL:
            continue
        if read.found == read.expected:
            right += 1
        else:
            yield because(
                reason(
                    "attends_to",
                    "{request} attends to the KV of prefix {expected:quoted} on {engine}",
                    expected=read.expected,
                ),
                reason(
                    "slot_holds",
                    "slot {slot} of block {block} holds {found:quoted}",
                    slot=read.slot,
                    found=read.found,
                )
                if read.found
                else reason(
                    "never_written",
                    "block {block} was never written there (slot {slot})",
                    slot=read.slot,
                ),
                engine=read.engine,
                request=read.request,
                group=read.group,
                block=read.block,
            )
    yield holds(right)


@check(
    "a request continues only from the Mamba state of exactly its computed tokens",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.STATE_READS,),
)
def state_read_is_state_at_computed(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """P computed the Mamba state of all N prompt tokens. D continued from this state and computed
    token N, so the state contained the token twice: "The capital of France is is Paris"
    (vllm#37310)."""
    right = 0
    for read in step.effects.reads:
        attention = cluster.engine(read.engine).groups[read.group].attention
        if attention or read.block == NULL:
            continue
        if read.found == read.expected:
            right += 1
        else:
            yield because(
                reason(
                    "computed_tokens",
                    "{request} has computed {tokens} tokens on {engine}",
                    tokens=len(read.expected),
                ),
                reason(
                    "holds_state",
                    "block {block} holds the state of {tokens} tokens ({found:quoted})",
                    tokens=len(read.found),
                    found=read.found,
                )
                if read.found
                else reason("holds_no_state", "block {block} holds no state"),
                engine=read.engine,
                request=read.request,
                group=read.group,
                block=read.block,
            )
    yield holds(right)


def promised(cfg: EngineConfig, key: Key) -> tuple[str, ...]:
    """What a block cached under this key must hold, slot by slot. The slots after these are free to
    differ."""
    group = cfg.groups[key[0]]
    prefix = key[1][: len(key[1]) - cfg.hash_lookahead_tokens]
    if not group.attention:
        return (prefix,)
    first = (len(prefix) - 1) // group.block_size * group.block_size
    return tuple(prefix[: end + 1] for end in range(first, len(prefix)))


@check(
    "a cached block holds exactly the KV or the state of the prefix that its key names",
    origin="vllm#51113",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.CONTENTS,),
)
def cached_block_holds_its_key(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """A prefill chunk of a Mamba request ended inside a block. vLLM hashed the state at that token
    as the state at the end of the whole block (vllm#43559). Every later hit on this block then
    continued from a wrong state."""
    cfg, right = cluster.engine(engine.name), 0
    for key, blocks in engine.cached:
        expected = promised(cfg, key)
        for block in blocks:
            content = engine.memory[block]
            held = content.slots if content and content.group == key[0] else ()
            if held[: len(expected)] == expected:
                right += 1
            else:
                what = "the KV of" if cfg.groups[key[0]].attention else "the state after"
                yield because(
                    reason(
                        "must_hold",
                        "block {block} of {engine} is cached as prefix "
                        f"{{prefix:quoted}} of group {{group}} and must hold {what} "
                        "{expected:listed}",
                        expected=expected,
                    ),
                    reason(
                        "holds",
                        f"it holds {what} {{held:listed}}"
                        if held
                        else "it holds nothing of this group",
                        held=held,
                    ),
                    engine=engine.name,
                    group=key[0],
                    block=block,
                    prefix=key[1],
                )
    yield holds(right)


def _written(before: Engine, after: Engine) -> list[int]:
    pairs = zip(before.memory, after.memory, strict=True)
    return [block for block, (old, new) in enumerate(pairs) if old is not new and old != new]


def _kept(cluster: Cluster, before: Engine, after: Engine, block: int) -> bool:
    """Whether a cached block still holds what its key names, because only slots behind it
    changed."""
    key = before.blocks[block].key
    contents = before.memory[block], after.memory[block]
    if key is None or None in contents:
        return False
    count = len(promised(cluster.engine(after.name), key))
    old, new = (content.slots[:count] if content else () for content in contents)
    return old == new


@check(
    "a step writes only to uncached blocks that its request owns alone",
    origin="vllm#57605",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.WRITES,),
)
def writer_is_alone(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A drafter wrote to lookahead slots that were not reserved, and its writes went outside its
    block table (vllm#57605). A write to the null block, to a cached block or to another request's
    block changes what other requests read.

    A block may be written and cached in one step, and other requests may hit it in the same step. A
    write that does not change the content is not visible here. A step with a failed load writes
    nothing. The copy of a block may belong to the cache alone after the step. An attention block
    that is cached up to a slot may be written behind that slot. A free block that a step takes is
    cached no more, even if it gets the same key again.
    """
    # Cannot be judged: a step with a failed load writes nothing.
    if isinstance(step.event, Complete) and step.event.failed:
        return
    in_step = isinstance(step.event, Schedule)
    copied = {(copy.engine, copy.target) for copy in step.effects.copies}
    for before, after in step.touched:
        if before.memory is after.memory:
            continue
        new_blocks = taken(step, after.name)
        # A step writes to blocks that it has allocated. Another event may end the request that it
        # writes for.
        holding = after if in_step else before
        for block in _written(before, after):
            old, new = before.blocks[block].key, after.blocks[block].key
            owners = [r.id for r in holding.requests if any(block in t for t in r.tables)]
            how: Reason | None = None
            if block == NULL:
                how = reason("is_null", "it is the null block")
            elif (
                old is not None
                and old == new
                and not (block in new_blocks and before.blocks[block].refs == 0)
                and not _kept(cluster, before, after, block)
            ):
                how = reason(
                    "stays_cached",
                    "it is cached as prefix {key:quoted} of group {of} before and after the write",
                    key=old[1],
                    of=old[0],
                )
            elif not owners and (after.name, block) not in copied:
                how = reason("nobody_holds", "no request holds it")
            elif len(owners) > 1 and new in (old, None):
                how = reason("several_hold", "{owners:names} hold it", owners=owners)
            if how is None:
                yield holds()
            else:
                written = reason("is_written", "block {block} of {engine} is written")
                yield because(written, how, engine=after.name, block=block)


@check(
    "beside Mamba groups, the worker erases each attention block that a step takes",
    origin="vllm#35219",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.ERASED, Need.ERASED_FOR_STATES),
)
def new_blocks_are_zeroed(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """In a model with Mamba layers, attention blocks and states share their memory. An attention
    kernel that reads a whole block meets the old values of a state in the slots that are not
    written yet, and these may be no numbers at all. So the worker erases new attention blocks
    (vllm#35219), those of windows included (vllm#51749).

    Blocks that the connector gets to fill are not judged. What is taken for a load is judged only
    where its transfer says what it gets.
    """
    after, zeroed = made.after, made.step.effects.zeroed
    groups = cluster.engine(after.name).groups
    if zeroed is None or all(group.attention for group in groups):
        return
    for choice in made.choices:
        request = after.find(choice.request)
        if not isinstance(choice, Admit | Compute) or request is None:
            continue
        for group, table, blocks in zip(groups, request.tables, choice.taken, strict=False):
            new = [block for block in blocks if group.attention and block in table]
            kept = [block for block in new if block not in zeroed]
            yield holds(len(new) - len(kept))
            # Cannot be judged: blocks for a load of which no transfer says what it fills.
            given = given_to_connector(cluster, made.step.after, after.name) if kept else {}
            if isinstance(choice, Admit) and request.id not in given.values():
                continue
            for block in kept:
                if block not in given:
                    yield because(
                        reason(
                            "takes_block",
                            "{request} on {engine} takes block {block} for "
                            "attention, beside Mamba groups",
                        ),
                        reason("not_erased", "the worker does not erase it"),
                        engine=after.name,
                        request=request.id,
                        block=block,
                    )


def _in_use(cluster: Cluster, before: Engine, after: Engine, block: int) -> Reason | None:
    """Why a block may not be erased; None if it may."""
    for request in after.requests:
        earlier = before.find(request.id)
        for index, table in enumerate(request.tables):
            if block not in table:
                continue
            place, size = table.index(block), cluster.engine(after.name).groups[index].block_size
            held = earlier.tables[index] if earlier is not None and earlier.tables else ()
            if earlier is None or block not in held or earlier.status in (LOADING, FAILED):
                continue
            if place * size < min(earlier.computed, request.computed):
                return reason(
                    "holds_tokens", "it holds tokens that {holder} has computed", holder=request.id
                )
    return None


@check(
    "the worker erases only new blocks that no load fills at the same time",
    origin="vllm#48481",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.ERASED,),
)
def zeroed_blocks_are_new(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A model with Mamba layers needs new attention blocks without old values in them, so the
    worker erases new blocks before it computes a step. It also erased blocks that an asynchronous
    load was filling at that time (vllm#48481). A block that is erased after its first step loses
    its KV.

    No zeroed block is filled by a load beside the steps, holds computed tokens, or stays cached.
    """
    event, zeroed = step.event, step.effects.zeroed
    if not isinstance(event, Schedule) or not zeroed:
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    new, filled = taken(step, after.name), filled_by(cluster, step.after, event.engine)
    for block in sorted(set(zeroed)):
        why = reason("is_null", "it is the null block") if block == NULL else None
        if block in filled:
            why = why or reason(
                "load_fills", "a load of {taker} fills it at the same time", taker=filled[block]
            )
        why = why or _in_use(cluster, before, after, block)
        key = after.blocks[block].key
        if why is None and key is not None and key == before.blocks[block].key and block not in new:
            why = reason(
                "is_cached",
                "it is cached as prefix {key:quoted} of group {of}",
                key=key[1],
                of=key[0],
            )
        if why is None:
            yield holds()
        else:
            erased = reason("is_erased", "the worker of {engine} erases block {block} in this step")
            yield because(erased, why, engine=after.name, block=block)


@check(
    "a drafter has computed a cached block with the next token that the block's hash covers",
    origin="vllm#50438",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.DRAFTED,),
)
def drafter_holds_its_key(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """The layers of an EAGLE drafter hold for each token what depends on the next token. A prompt
    hits a block and continues with another token than the block was computed with. The drafter then
    proposes worse drafts, and vLLM rejects more of them; nothing fails. Therefore a hit leaves out
    the last block of a match (vllm#17137), or the hash of a block covers the token after it
    (vllm#50438).

    It is judged where hashes cover the token after a block.
    """
    cfg, right = cluster.engine(engine.name), 0
    # Cannot be judged: else a hit leaves out the last block of a match, and what its drafter holds.
    if not cfg.hash_lookahead_tokens:
        return
    for (index, prefix), blocks in engine.cached:
        group = cfg.groups[index]
        for block in blocks if group.eagle else ():
            content = engine.memory[block]
            held = content.slots[group.block_size :] if content and content.group == index else ()
            if held == (prefix,):
                right += 1
            else:
                yield because(
                    reason(
                        "is_cached",
                        "block {block} of {engine} is cached as prefix "
                        "{prefix:quoted} of group {group}, which includes the token "
                        "after the block",
                    ),
                    reason(
                        "drafter_computed",
                        "its drafter computed the block as part of {held:listed}",
                        held=held,
                    ),
                    engine=engine.name,
                    group=index,
                    block=block,
                    prefix=prefix,
                )
    yield holds(right)
