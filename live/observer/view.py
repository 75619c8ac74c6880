"""Reads a real scheduler into a `model.state.Engine` and changes nothing."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import RequestStatus

from kvproof.live import adapt
from kvproof.model import config, state
from kvproof.model.arithmetic import counts
from kvproof.model.config.extra_keys import (
    after_a_dropped_token,
    key_of,
    with_no_token_dropped,
    written,
)
from kvproof.model.state import Block, Flight, Key, Request

_STATUS = {
    "WAITING": state.WAITING,
    "RUNNING": state.RUNNING,
    "PREEMPTED": state.PREEMPTED,
    "WAITING_FOR_STREAMING_REQ": state.PAUSED,
}


class HashedTokens:
    """The tokens of which each block hash is made that a request of this engine ever had: those up
    to the end of a block of `block_tokens` tokens, and `ahead` tokens after it."""

    def __init__(self, block_tokens: int, ahead: int = 0) -> None:
        self.block_tokens, self.ahead = block_tokens, ahead
        self.known: dict[bytes, tuple[int, ...]] = {}

    def learn(self, request: Any) -> None:
        """Record the hashes of a request. The last one says whether they are known: each is made of
        the one before it."""
        hashes = request.block_hashes
        if not hashes or bytes(hashes[-1]) in self.known:
            return
        for at, value in enumerate(map(bytes, hashes), 1):
            if value not in self.known:
                end = at * self.block_tokens + self.ahead
                self.known[value] = tuple(request.all_token_ids[:end])

    def named(self, key: Any) -> object:
        """The group and the tokens of a key of the prefix cache."""
        return get_group_id(key), self.known.get(bytes(get_block_hash(key)), "")


class Names:
    """Prefixes by block hash, for each hash that a request of this engine ever had."""

    def __init__(self, cfg: config.EngineConfig) -> None:
        self.cfg = cfg
        self.prefixes: dict[tuple[int, bytes], str] = {}
        self.known: dict[str, Any] = {}
        self.sessions: set[str] = set()

    def learn(self, request: Any, text: str) -> None:
        """Record the hashes of a request with the tokens `text`. The last one says whether they
        are known: each is made of the one before it."""
        hashes = request.block_hashes
        last = hashes[-1] if hashes else None
        if self.known.get(request.request_id, "") == last:
            return
        self.known[request.request_id] = last
        text = self.as_hashed(request, text)
        unit, ahead = self.cfg.hash_block_size, self.cfg.hash_lookahead_tokens
        for index, group in enumerate(self.cfg.groups):
            for size in (unit, group.block_size):
                whole = adapt.hashes_for(hashes, unit, size)
                known = int(counts.full_blocks(max(len(text) - ahead, 0), size))
                for position in range(min(len(whole), known)):
                    end = (position + 1) * size
                    covered = text[end : end + ahead]
                    if covered == with_no_token_dropped(covered):  # else it is known already
                        self.prefixes[index, bytes(whole[position])] = text[: end + ahead]

    def as_hashed(self, request: Any, text: str) -> str:
        """The tokens `text` of a request as its hashes cover them. A session drops the last token
        of an answer, and may keep the hash of the block before, which covers that token (0.33.0,
        `Scheduler._update_request_as_session`). Each later hash is made of that one. Any other hash
        that is known with other tokens is a mistake, and is left as it is."""
        ahead = self.cfg.hash_lookahead_tokens
        if request.resumable:
            self.sessions.add(request.request_id)
        if not ahead or request.request_id not in self.sessions:
            return text
        text = with_no_token_dropped(text)
        for position, value in enumerate(request.block_hashes, 1):
            end = position * self.cfg.hash_block_size
            name, after = self.prefixes.get((0, bytes(value))), end + ahead
            if name is None:
                break
            dropped = name[end:after] == state.SAMPLED * ahead
            if dropped and name[end:after] != text[end:after]:
                text = text[:end] + after_a_dropped_token(text[end:after]) + text[after:]
        return text

    def key(self, block_hash: Any) -> Key:
        """The key for a block hash with its group; an unknown hash is shown as itself."""
        group = get_group_id(block_hash)
        value = get_block_hash(block_hash)
        return group, self.prefixes.get((group, bytes(value)), f"unknown {value.hex()[:8]}")


def free(pool: Any) -> tuple[int, ...]:
    """The blocks in the free queue, first to last. A damaged queue may be a circle, so no more than
    one block beyond their number is read."""
    found: list[int] = []
    block = pool.free_block_queue.fake_free_list_head.next_free_block
    while block.next_free_block is not None and len(found) <= len(pool.blocks):
        found.append(block.block_id)
        block = block.next_free_block
    return tuple(found)


def cached(scheduler: Any, names: Names) -> state.Cached:
    """The map from keys to blocks, oldest block of a key first."""
    entries = scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block._cache
    result = {names.key(key): blocks_of(entry) for key, entry in entries.items()}
    return tuple(sorted(result.items()))


def blocks_of(entry: Any) -> tuple[int, ...]:
    """The blocks of an entry of the hash map, oldest first: none, one, or several by their ids."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, dict) else (entry.block_id,)


def block(found: Any, further: Mapping[int, Any], key: Callable[[Any], Key]) -> Block:
    """A block with its reference count and its keys, as `key` names them. `further` are the hashes
    that end inside blocks. vLLM does not maintain the count of the null block."""
    also = further.get(found.block_id, ()) if further else ()
    return Block(
        0 if found.is_null else found.ref_cnt,
        None if found.block_hash is None else key(found.block_hash),
        tuple(sorted(map(key, also))),
    )


def blocks(scheduler: Any, names: Names) -> tuple[Block, ...]:
    """All blocks."""
    pool = scheduler.kv_cache_manager.block_pool
    further: Mapping[int, Any] = adapt.further_hashes(pool, names.cfg.partial_block_hits)
    return tuple(block(each, further, names.key) for each in pool.blocks)


def status(scheduler: Any, request: Any) -> str:
    """The status, by the model's name. It says so if the queues do not match it."""
    if misqueued(scheduler, request):
        return state.MISQUEUED
    return status_alone(scheduler, request)


def status_alone(scheduler: Any, request: Any) -> str:
    """The status, by the model's name, whatever the queues have."""
    name = request.request_id
    if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
        if name not in scheduler.finished_recving_kv_req_ids:
            return state.LOADING
        failed = name in scheduler.failed_recving_kv_req_ids
        return state.FAILED if failed else state.LOADED
    if RequestStatus.is_finished(request.status):
        finished_well = request.status in (
            RequestStatus.FINISHED_LENGTH_CAPPED,
            RequestStatus.FINISHED_STOPPED,
        )
        return state.SENDING if finished_well else state.ABORTED
    return str(_STATUS.get(request.status.name, request.status.name.lower()))


def prompt_of(live: Any, known: Request) -> str:
    """The prompt. The prompt of a session grows by the answers that vLLM keeps, so it is read from
    vLLM, in the letters of its extra key."""
    if getattr(live, "resumable", False) and not known.embeds:
        return written("".join(map(chr, live.prompt_token_ids)), key_of(known.prompt))
    return known.prompt[: live.num_prompt_tokens]


def text_of(live: Any, known: Request) -> str:
    """The tokens of a request. Before the first output this is the whole prompt as sent."""
    if len(live.output_token_ids) == 0:
        return known.prompt
    return known.prompt[: live.num_prompt_tokens] + state.SAMPLED * len(live.output_token_ids)


def request(names: Names, scheduler: Any, live: Any, known: Request) -> Request:
    """One request. `known` has what vLLM does not keep: the job, and the last admission."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    name = live.request_id
    tables = tuple(tuple(b.block_id for b in m.req_to_blocks.get(name, ())) for m in managers)
    held = any(tables)
    known = known._replace(
        status=status(scheduler, live),
        prompt=names.as_hashed(live, prompt_of(live, known)),
        max_tokens=live.max_tokens,
        output=state.SAMPLED * len(live.output_token_ids),
        computed=live.num_computed_tokens,
        preemptions=min(live.num_preemptions, 1),
    )
    if not held:
        return known._replace(
            tables=(), num_cached_blocks=(), hit=0, external=0, shared_prefix_boundary=0
        )
    num_cached_blocks = tuple(m.num_cached_block.get(name, 0) for m in managers)
    shared_prefix_boundary = (
        adapt.shared_prefix_boundary(live) if names.cfg.marks_shared_prefix_boundaries else 0
    )
    return known._replace(
        tables=tables,
        num_cached_blocks=num_cached_blocks,
        shared_prefix_boundary=shared_prefix_boundary,
    )


def fates(scheduler: Any, name: str, shares: Sequence[Flight]) -> list[Flight]:
    """A request's parts of the steps in flight, oldest first, with the fate of each: vLLM counts
    the tokens of steps before a preemption as stale. An older vLLM does not; then `shares` have the
    fates that the node noted."""
    live = scheduler.requests.get(name)
    if live is None or RequestStatus.is_finished(live.status):
        return [share._replace(fate=state.VOID) for share in shares]
    result = []
    counted = adapt.stale_output(live)
    if counted is None:
        return _noted_fates(adapt.outputs_to_drop(live), shares)
    stale, dropped = counted
    for share in shares:
        fate = state.VOID if dropped else state.LATE
        result.append(share._replace(fate=fate if stale > 0 else state.COUNTS))
        stale -= share.tokens
    return result


def stale(share: Flight, preempted: Collection[str], fate: str) -> Flight:
    """A part of a step with this fate, if its request was preempted. What is VOID stays VOID."""
    if share.request not in preempted or share.fate == state.VOID:
        return share
    return share._replace(fate=fate)


def _noted_fates(dropped: int, shares: Sequence[Flight]) -> list[Flight]:
    """The noted fates, where vLLM drops exactly the next `dropped` outputs."""
    result = []
    for share in shares:
        fate = share.fate
        if share.samples and dropped > 0:
            fate, dropped = state.VOID, dropped - 1
        elif share.samples and fate == state.VOID:
            fate = state.LATE
        result.append(share._replace(fate=fate))
    return result


def in_flight(
    scheduler: Any, steps: Sequence[tuple[Flight, ...]]
) -> tuple[tuple[Flight, ...], ...]:
    """The steps in flight, with the fate of each output."""
    names = {share.request for step in steps for share in step}
    left = {
        name: fates(scheduler, name, [f for step in steps for f in step if f.request == name])
        for name in names
    }
    return tuple(tuple(left[share.request].pop(0) for share in step) for step in steps)


def deferred(scheduler: Any) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Lists of blocks that wait for steps to end, each with the number of these steps."""
    done, deferred_frees = adapt.deferred_frees(scheduler)
    waiting = (
        (fence - done, tuple(b.block_id for b in blocks if not b.is_null))
        for fence, blocks in deferred_frees
    )
    return tuple((steps, blocks) for steps, blocks in waiting if blocks)


def pending(scheduler: Any) -> tuple[tuple[str, int], ...]:
    """The number of placeholders by request. A finished request has none."""
    held = (r for r in scheduler.requests.values() if not RequestStatus.is_finished(r.status))
    counts = ((r.request_id, r.num_output_placeholders) for r in held)
    return tuple(sorted((name, count) for name, count in counts if count))


def _states_of(request: Request, states: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The state blocks of a request that is not finished."""
    gone = not request.tables or request.status == state.SENDING
    return () if gone else states.get(request.id, ())


def with_drafts(
    scheduler: Any, engine: state.Engine, output: Any, states: Mapping[str, tuple[int, ...]]
) -> state.Engine:
    """The engine with the draft tokens of each request, waiting or being verified, and with its
    state blocks, which only the worker knows. Padding tokens of a step are not drafts."""
    verified = output.scheduled_spec_decode_tokens if output else {}
    running = output.num_scheduled_tokens if output else {}
    requests = []
    for request in engine.requests:
        held = scheduler.requests[request.id].spec_token_ids
        ids = verified.get(request.id, ()) if request.id in running else held
        drafts = sum(1 for token in ids if token >= 0)
        requests.append(request._replace(drafts=drafts, states=_states_of(request, states)))
    return engine._replace(requests=tuple(requests))


def with_placeholder_drafts(
    scheduler: Any, engine: state.Engine, states: Mapping[str, tuple[int, ...]]
) -> state.Engine:
    """The engine with the number of draft tokens that the next step of each request will verify,
    and with its state blocks. Where steps overlap, the scheduler knows only the number of drafts. A
    finished request has 0."""
    requests = []
    for request in engine.requests:
        live = scheduler.requests[request.id]
        drafts = 0 if RequestStatus.is_finished(live.status) else len(live.spec_token_ids)
        requests.append(request._replace(drafts=drafts, states=_states_of(request, states)))
    return engine._replace(requests=tuple(requests))


def engine(
    scheduler: Any, before: state.Engine, names: Names, known: Mapping[str, Request]
) -> state.Engine:
    """The whole engine. Memory and the step in flight come from the adapter."""
    pool = scheduler.kv_cache_manager.block_pool
    for live in scheduler.requests.values():
        names.learn(live, text_of(live, known[live.request_id]))
    return before._replace(
        blocks=blocks(scheduler, names),
        free=free(pool),
        cached=cached(scheduler, names),
        requests=tuple(
            request(names, scheduler, r, known[r.request_id]) for r in scheduler.requests.values()
        ),
        running=tuple(r.request_id for r in scheduler.running),
        pending=pending(scheduler),
        deferred=deferred(scheduler),
    )


_QUEUES: dict[type, tuple[str, ...]] = {}


def queues(scheduler: Any) -> list[Any]:
    """The queues of waiting requests; a release has one or several."""
    kind = type(scheduler)
    if kind not in _QUEUES:
        found = vars(scheduler).items()
        _QUEUES[kind] = tuple(name for name, value in found if isinstance(value, RequestQueue))
    return [getattr(scheduler, name) for name in _QUEUES[kind]]


def misqueued(scheduler: Any, request: Any) -> bool:
    """Whether the scheduler queues of a request do not match its status. A waiting request is in
    exactly one of the waiting queues; a running or finished request is in none. `running` is read
    separately."""
    times = sum(1 for queue in queues(scheduler) for other in queue if other is request)
    waits = request.status != RequestStatus.RUNNING
    return times != (waits and not RequestStatus.is_finished(request.status))
