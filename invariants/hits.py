"""What must be true of prefix hits: what a hit must find in the cache, how long it must be, and
what a computed prompt must leave there for later hits. All of it is derived from what each kind of
layer reads.

A request that hits some tokens computes the next token. Everything that the layers of a group read
for it must be cached (`arithmetic.first_token_read`). The layers of a drafter are different: what
they hold for a token depends on the token after it. In a group with such layers, one more block
must match, which is not part of the hit. Or the hash of each block covers the token after it, which
must match too.
"""

import functools
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from kvproof.invariants.arithmetic import blocks_begun, first_token_read, in_common
from kvproof.invariants.check import check
from kvproof.model.because import Excuse, Judged, because, choice, holds, reason, release
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.events import Complete, Compute, Schedule
from kvproof.model.ghost_state import Served
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    NULL,
    SAMPLED,
    SENDING,
    Engine,
    Key,
    Request,
)
from kvproof.model.step import Admission, Step

SPARSE_RETENTION = choice("sparse retention keeps few states and windows")
STATE_AT_CHUNK_END = choice("a state is kept only where a chunk ends")
WINDOW_PASSED_BY = choice("a longer prompt may have hit this window, and not computed it")
END_OF_PROMPT = choice("inside a block, only the end of a prompt is cached")


@functools.lru_cache(maxsize=4096)
def may_end_at(engine: EngineConfig, hit: int, loads: bool = False) -> bool:
    """Whether a hit of this length is owed in all groups: a block of each group ends there, or a
    hash exists there if hits may end inside a block. A request that `loads` what follows may load
    the begun block too, so that no block is copied."""
    if engine.partial_block_hits and not loads:
        return hit % engine.hash_unit == 0
    return all(hit % g.block_size == 0 for g in engine.groups if g.attention or g.aligned)


@functools.lru_cache(maxsize=256)
def alike_after_hit(engine: EngineConfig, ended: bool = False) -> int:
    """Number of tokens after a hit that must match too: one block if a drafter has layers, or the
    tokens after a block that its hash covers. Where the earlier prompt `ended` and hits may end
    inside a block, its last prefix with a hash is cached, and the tokens between two hashes are
    enough."""
    block = max((g.block_size for g in engine.groups if g.eagle), default=0)
    if ended and engine.partial_block_hits:
        block = min(block, engine.hash_unit)
    return engine.hash_lookahead_tokens or block


def longest(engine: EngineConfig, known: int, alike: int, loads: bool = False) -> int:
    """The longest hit that a request of `known` tokens is owed, of which the first `alike` tokens
    were computed before, all of them by a prompt that ended there. At least one token is left to
    compute. `loads` is as in `may_end_at`."""
    top = min(known - 1, alike - alike_after_hit(engine, ended=alike == known))
    return next((hit for hit in range(top, 0, -1) if may_end_at(engine, hit, loads)), 0)


@functools.lru_cache(maxsize=4096)
def positions(engine: EngineConfig, group: Group, hit: int) -> range:
    """The positions of the blocks that must be cached for a hit."""
    size = group.block_size
    after = 1 if hit and _reads_next(engine, group) else 0
    return range(first_token_read(group, hit) // size, blocks_begun(hit + after, size))


def _reads_next(engine: EngineConfig, group: Group) -> bool:
    """Whether the token after a hit must match too although no hash covers it."""
    return group.eagle and not engine.hash_lookahead_tokens


def serving(engine: EngineConfig, group: Group, known: int, hit: int, position: int) -> list[int]:
    """The lengths of the prefixes of a request of `known` tokens that can serve the block at this
    position, the longest first; one of them must be cached.

    If the hit does not end inside the block, the whole block must be cached. If it does, only the
    slots before the end of the hit are needed, and with a drafter's layers the slot after it. A
    prefix has the tokens after its end that its hash covers. An
    attention block of a longer prefix has these slots too, and may be used if one token is left to
    compute. A Mamba state belongs to one prefix only.
    """
    begin = position * group.block_size
    end = begin + group.block_size
    ahead = 1 if engine.partial_block_hits and _reads_next(engine, group) else 0
    covered = engine.hash_lookahead_tokens
    if not begin < hit + ahead < end:
        return [end + covered]
    if not group.attention:
        return [hit + covered]
    last = min(end, known - 1 + ahead)
    return [each + covered for each in range(last, hit + ahead - 1, -1)]


def lacking(
    engine: EngineConfig,
    is_cached: Callable[[int, int], bool],
    known: int,
    hit: int,
    held: int = 0,
) -> Iterator[tuple[int, int]]:
    """What a hit needs and the cache lacks for a request of `known` tokens: pairs of a group's
    index and the length of the shortest prefix that would serve. `is_cached` says so of a group and
    a length. Blocks of a shorter hit that is `held` are not looked up again."""
    for index, group in enumerate(engine.groups):
        for position in positions(engine, group, hit):
            if position < held // group.block_size:
                continue
            lengths = serving(engine, group, known, hit, position)
            if not any(is_cached(index, length) for length in lengths):
                yield index, lengths[-1]


def missing(
    engine: EngineConfig, keys: set[Key], tokens: str, hit: int
) -> Iterator[tuple[int, str]]:
    """What the hit needs and the cache lacks: pairs of a group's index and the shortest prefix that
    would serve."""
    for index, group in enumerate(engine.groups):
        for position in positions(engine, group, hit):
            lengths = serving(engine, group, len(tokens), hit, position)
            if keys.isdisjoint([(index, tokens[:length]) for length in lengths]):
                yield index, tokens[: lengths[-1]]


NO_ROOM_FOR_COPY = "the copy of the block inside which the hit ends has no room"
"""An excuse for a shorter hit."""


def has_room(engine: EngineConfig, hit: int, tokens: int) -> bool:
    """Whether an engine without other requests can serve a request of `tokens` tokens with this
    hit; one block is the null block.

    If the hit ends inside a block, this block is copied, and both blocks are held until the copy is
    made.
    """
    held = 0
    for group in engine.groups:
        begun, size = blocks_begun(hit, group.block_size), group.block_size
        more = blocks_begun(tokens, size) - begun
        if group.kind == "mamba":
            more = min(more, 1)  # one running state, at any position
        if group.kind == "window":
            # The tokens that the window reads and those that the steps in flight compute. The
            # window may begin inside a block.
            seen = group.window - 1 + engine.chunk_tokens * engine.steps_in_flight
            more = min(more, max(blocks_begun(seen, size) + 1 - begun, 0))
        copied = 1 if hit % size else 0
        held += len(positions(engine, group, hit)) + copied + more
    return held < engine.num_blocks


@check(
    "every group has the blocks that a prefix hit needs, or the connector loads the missing ones",
    origin="vllm#46453",
    severity=Severity.WRONG_TOKENS,
    needs=(Need.LOOKUPS,),
)
def hit_holds_in_every_group(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """vllm#44243 took the longest hit of any group as the hit of the request. A Mamba state had
    survived behind attention blocks that were evicted, and vLLM treated these attention tokens as
    computed (vllm#46453). The request then attended to blocks with other content."""
    for admission in step.effects.admissions:
        engine = cluster.engine(admission.engine)
        keys = {key for key, blocks in admission.cached if blocks}
        tokens = admission.tokens + admission.dropped
        lacking = [
            (index, prefix)
            for index, prefix in missing(engine, keys, tokens, admission.hit)
            if not admission.external or engine.groups[index].kind == "full"
        ]
        if admission.hit and not lacking:
            yield holds()
        for index, prefix in lacking:
            yield because(
                reason("hits", "{request} hits {hit} tokens on {engine}", hit=admission.hit),
                reason(
                    "has_no_block",
                    "group {group} has no cached block for prefix {missing:quoted}",
                    missing=prefix,
                ),
                engine=admission.engine,
                request=admission.request,
                group=index,
            )


def _cached_hits(cfg: EngineConfig, admission: Admission) -> Iterator[int]:
    """The lengths of all hits that every group can serve, the longest first. A block that ends with
    the last token can serve a hit inside it only under a shorter key, although P knows the token
    that it dropped."""
    tokens = admission.tokens + ("" if cfg.partial_block_hits else admission.dropped)
    keys = {key for key, blocks in admission.cached if blocks}
    for hit in range(len(admission.tokens) - 1, 0, -1):
        if may_end_at(cfg, hit, admission.external > 0) and not any(
            missing(cfg, keys, tokens, hit)
        ):
            yield hit


def longest_cached(cluster: Cluster, admission: Admission) -> int:
    """The longest hit that every group can serve, found by trying all lengths. A hit that ends
    inside a block needs a copy of that block, so an engine of this size must have room for the
    copy."""
    cfg, known = cluster.engine(admission.engine), len(admission.tokens)
    hits = _cached_hits(cfg, admission)
    return next((n for n in hits if not cfg.partial_block_hits or has_room(cfg, n, known)), 0)


@check(
    "a prefix hit is the longest hit that every group can serve",
    origin="vllm#51771",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.LOOKUPS,),
)
def hit_is_the_longest(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """With three or more groups, one group answered 0 once, and the search for a common hit ended
    at 0 tokens (vllm#51771). All answers stay correct; only the hit rate falls."""
    for admission in step.effects.admissions:
        cfg = cluster.engine(admission.engine)
        # Cannot be judged: without a cache there are no hits.
        if not cfg.prefix_caching:
            continue
        best = next(_cached_hits(cfg, admission), 0)
        if admission.hit >= best > 0:
            yield holds()
        elif admission.hit < best:
            roomy = longest_cached(cluster, admission) if cfg.partial_block_hits else best
            yield because(
                reason(
                    "groups_have",
                    "all groups of {engine} have {best} tokens of {request} cached",
                    best=best,
                ),
                reason("hits", "the request hits {hit} tokens", hit=admission.hit),
                excuses=(choice(NO_ROOM_FOR_COPY),) if admission.hit >= roomy else (),
                engine=admission.engine,
                request=admission.request,
            )


def _held_by_attention(cfg: EngineConfig, admission: Admission) -> int:
    """The longest hit that full attention alone can serve, if the rest is loaded: at least one
    token is."""
    full = [index for index, group in enumerate(cfg.groups) if group.kind == "full"]
    keys = {key for key, blocks in admission.cached if blocks}
    for hit in range(admission.hit + admission.external - 1 if full else 0, 0, -1):
        lacking = missing(cfg, keys, admission.tokens, hit)
        if may_end_at(cfg, hit, loads=True) and not any(index in full for index, _ in lacking):
            return hit
    return 0


@check(
    "what full attention holds of a prompt is not loaded again",
    origin="vllm#42524",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.LOOKUPS, Need.LOADED_FROM_P),
    ideal=True,
)
def held_attention_is_hit(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """D has the attention blocks of a prompt, and none of its states. P sends the states in any
    case, and D may hit the attention blocks and load only the rest. vLLM loaded the whole prompt
    again on every turn (vllm#42524). Only pairs are judged by this sentence."""
    for admission in step.effects.admissions:
        cfg = cluster.engine(admission.engine)
        # Cannot be judged: without a load. `hit_is_the_longest` judges the hit of all groups.
        if not cfg.prefix_caching or not admission.external:
            continue
        held = _held_by_attention(cfg, admission)
        if admission.hit >= held > 0:
            yield holds()
        elif admission.hit < held:
            yield because(
                reason(
                    "attention_holds",
                    "full attention of {engine} has {held} tokens of {request} cached",
                    held=held,
                ),
                reason("loads", "it hits {hit} tokens, and loads the others", hit=admission.hit),
                excuses=_why_loaded_again(cfg),
                engine=admission.engine,
                request=admission.request,
            )


def _why_loaded_again(cfg: EngineConfig) -> Iterator[Excuse]:
    """Why an engine may load again what its full attention holds."""
    if cfg.store:
        yield choice("a hit beside a store needs all groups at once")
    else:
        yield choice("another group ends the hit, and the rest is loaded for all groups")


def _could_hit(cfg: EngineConfig, admission: Admission, served: tuple[Served, ...]) -> int:
    """The longest hit that an admitted request could have, had each group kept all that the served
    prompts computed."""
    known, loads, best = len(admission.tokens), admission.external > 0, 0
    for each in served:
        common = in_common(each.prompt, admission.tokens)
        ends = (known, common) if common == len(each.prompt) else (known,)
        best = max(best, *(longest(cfg, end, common, loads) for end in ends))
    return best


def _why_none(cluster: Cluster, step: Step, admission: Admission) -> Iterator[Excuse]:
    """Why an admission may hit none of the tokens that the served prompts computed."""
    cfg = cluster.engine(admission.engine)
    if not admission.served:
        yield choice("a cached block was taken for other tokens earlier in this step")
    if all(group.kind == "full" for group in cfg.groups):
        return
    if cluster.sessions and cfg.retention is not None:
        yield choice("a session keeps only the states at which its first part alone would resume")
    if cluster.follow_up_turns and cfg.role == "prefill":
        yield choice("P has loaded the earlier turn, and has not computed its states and windows")
    if cfg.store and cfg.partial_block_hits:
        yield choice("a prompt that a store loaded leaves no state inside a block")
    if cfg.role == "decode":
        yield from _why_none_on_decode(cfg, step, admission)


def _why_none_on_decode(cfg: EngineConfig, step: Step, admission: Admission) -> Iterator[Excuse]:
    """Why D, which has computed no states of the tokens that it loaded, and which has only the end
    of a window of them, may hit nothing."""
    if cfg.store:
        yield choice("a hit beside a store needs all groups at once")
    elif _offered(step, admission) is None:
        yield choice("nothing is offered to D, so that the states that it lacks do not come")
    elif any(group.kind == "window" for group in cfg.groups):
        yield choice("D has loaded only the end of a window")
    elif not admission.external:
        yield choice("D loads nothing, so that the states that it lacks do not come")


def _offered(step: Step, admission: Admission) -> int | None:
    """The number of tokens that P offers to this request; None if it offers nothing."""
    transfer = step.before.transfer(admission.request)
    return transfer.tokens if transfer is not None and transfer.phase == Phase.OFFERED else None


def _owed_tokens(cluster: Cluster, step: Step, admission: Admission) -> int:
    """Tokens that this admission must find in the local cache, with no excuse, where it may not hit
    none (`_why_none`)."""
    cfg = cluster.engine(admission.engine)
    known = len(admission.tokens)
    loads = admission.external > 0
    limit = longest(cfg, known, known, loads)
    everywhere = all(g.kind == "full" for g in cfg.groups)
    if cfg.role == "decode" and not everywhere:
        everywhere = True  # P sends the state, after at least one token of D's cache
        limit = min(limit, longest(cfg, _offered(step, admission) or 0, known, loads))
    best = 0
    for served in admission.served:
        common = in_common(served.prompt, admission.tokens)
        if everywhere:
            kept = min(longest(cfg, known, common, loads), limit)
        elif common == len(served.prompt):
            kept = longest(cfg, common, common, loads)
        else:
            kept = served.shared if common >= served.shared + alike_after_hit(cfg) else 0
        if cluster.sessions and cfg.partial_block_hits and cfg.aligned_group and not everywhere:
            kept -= kept % cfg.aligned_group.block_size
        roomy = not cfg.partial_block_hits or has_room(cfg, kept, known)
        best = max(best, kept if kept <= limit and roomy else 0)
    return best


def _lacks_windows_alone(cfg: EngineConfig, admission: Admission, could: int) -> bool:
    """Whether the cache lacks blocks of windows for a hit of this length, and nothing else."""
    keys = {key for key, blocks in admission.cached if blocks}
    lacking = [index for index, _ in missing(cfg, keys, admission.tokens, could)]
    return bool(lacking) and all(cfg.groups[index].kind == "window" for index in lacking)


def _why_fewer(cluster: Cluster, step: Step, admission: Admission, could: int) -> Iterator[Excuse]:
    """Why an admission may hit fewer tokens than the served prompts computed."""
    cfg = cluster.engine(admission.engine)
    known, loads = len(admission.tokens), admission.external > 0
    state = cfg.aligned_group
    if cfg.role == "decode" and could > longest(cfg, _offered(step, admission) or 0, known, loads):
        yield choice("P offers no more tokens")
    if state or cfg.retention is not None:
        yield choice("the prompts part where no state, or no window, is kept")
    elif _lacks_windows_alone(cfg, admission, could):
        yield WINDOW_PASSED_BY
    if cluster.sessions and cfg.partial_block_hits and state and could % state.block_size:
        yield choice(
            "inside a block, a session keeps only the state at which its first part would resume"
        )
    if cfg.partial_block_hits and not has_room(cfg, could, known):
        yield choice(NO_ROOM_FOR_COPY)


@check(
    "a repeated prompt hits as many tokens as its groups can serve",
    origin="vllm#43587",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.SERVED, Need.WINDOWS_KEPT),
)
def repeated_prompt_hits(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """vLLM cached the Mamba state of a shared prefix only where the last chunk of the first prompt
    ended. Prompts that differ before that token hit 0 tokens, however often the prefix came
    (vllm#43587, vllm#45238).

    A prompt must hit all full blocks that it shares with an earlier prompt, except the block of the
    last token. A prompt that differs from an earlier prompt may not find a Mamba state that no
    request cached. The second such prompt shows the shared prefix boundary, and from the third
    prompt on the shared prefix must be hit without an excuse (vllm#37898). Eviction ends this duty.
    """
    for admission in step.effects.admissions:
        cfg = cluster.engine(admission.engine)
        # Cannot be judged: without a cache there are no hits.
        if not cfg.prefix_caching:
            continue
        # Cannot be judged: what was served before an eviction (see `ghost`).
        served = admission.served or step.before.engine(admission.engine).ghost.served
        could = _could_hit(cfg, admission, served)
        if admission.hit >= could:
            if could:
                yield holds()
            continue
        excuses = tuple(_why_none(cluster, step, admission))
        due = could
        if not excuses:
            due = _owed_tokens(cluster, step, admission)
            if admission.hit >= due:
                due = could
                excuses = tuple(_why_fewer(cluster, step, admission, could))
        yield because(
            reason(
                "must_hit",
                "{served} prompts were served on {engine} and nothing was "
                "evicted, so {request} must hit {due} tokens",
                served=len(served),
                due=due,
            ),
            reason("hits", "it hits {hit} tokens", hit=admission.hit),
            excuses=excuses,
            engine=admission.engine,
            request=admission.request,
        )


ANY = "?"
"""The token with which a later prompt goes on after computed tokens: it may be any."""


def _known_and_computed(cfg: EngineConfig, request: Request | None) -> int:
    """Tokens of a request whose KV is in its blocks and for which a hash may be there. The blocks
    of a load do not count before it is over."""
    if request is None or not any(request.tables):
        return 0
    computed = min(request.computed, len(request.tokens) - cfg.hash_lookahead_tokens)
    return min(computed, request.hit) if request.status in (LOADING, LOADED, FAILED) else computed


def _ends(before: Request, after: Request | None) -> bool:
    """Whether a request ends in a step, or starts again."""
    if after is None or not any(after.tables):
        return True
    return after.status in (SENDING, ABORTED) and before.status != after.status


class _Computed(NamedTuple):
    """What a step has computed of a request: its `tokens`, and the lengths at which `hits` may end
    in those that are computed. `settled` is such a length: what it needs was known before the
    output that came last."""

    request: Request
    tokens: str
    hits: list[int]
    settled: int
    ended: bool


def _slack(cfg: EngineConfig) -> int:
    """The most tokens that one output makes known after they were computed."""
    return cfg.drafts + (1 if cfg.overlaps else 0)


def _gone_on(cfg: EngineConfig, step: Step, before: Engine, after: Engine) -> Iterator[_Computed]:
    """The requests that have computed more in a step. What an output has made known may be cached
    by the next step of its request, and is judged there once more."""
    if before.requests is after.requests:
        return
    apart = 0 if cfg.hash_lookahead_tokens else alike_after_hit(cfg)
    event = step.event
    chosen = (event.chose or ()) if isinstance(event, Schedule) else ()
    scheduled = {choice.request for choice in chosen if isinstance(choice, Compute)}
    for request in after.requests:
        earlier = before.find(request.id)
        if request is earlier or request.status in (SENDING, ABORTED):
            continue
        first = settled = max(_known_and_computed(cfg, earlier), request.hit)
        last = _known_and_computed(cfg, request)
        if request.id in scheduled and getattr(event, "engine", "") == after.name:
            first = max(first - _slack(cfg), request.hit)
        if first >= last:
            continue
        lengths = range(max(first - apart, request.hit) + 1, last - apart + 1)
        hits = [length for length in lengths if may_end_at(cfg, length)]
        if hits:
            yield _Computed(request, request.tokens, hits, settled - apart, ended=False)


def _longest_in(cfg: EngineConfig, tokens: int, ended: bool) -> int:
    """The longest hit that a prompt can have which begins with these tokens and goes on."""
    top = tokens - (0 if cfg.hash_lookahead_tokens else alike_after_hit(cfg, ended))
    return next((hit for hit in range(top, 0, -1) if may_end_at(cfg, hit)), 0)


def _over(cfg: EngineConfig, step: Step, before: Engine, after: Engine) -> Iterator[_Computed]:
    """The requests that have ended in a step, or start again, with the longest hit in them: of its
    blocks of full attention none can have been evicted."""
    if before.requests is after.requests:
        return
    accepted = step.event.accepted if isinstance(step.event, Complete) else {}
    for request in before.requests:
        goes_on = request.status not in (SENDING, ABORTED) and any(request.tables)
        if not goes_on or not _ends(request, after.find(request.id)):
            continue
        known = _known_and_computed(cfg, request)
        output = request.output + SAMPLED * accepted.get(request.id, 0)
        last = _known_and_computed(cfg, request._replace(output=output))
        prompt = len(request.prompt) - cfg.hash_lookahead_tokens
        whole = _longest_in(cfg, prompt, ended=True) if known >= prompt else 0
        settled = max(_longest_in(cfg, known - _slack(cfg), ended=False), whole)
        hits = {settled, max(_longest_in(cfg, last, ended=False), whole)} - {0}
        if hits:
            tokens = request.prompt + output
            yield _Computed(request, tokens, sorted(hits), settled, ended=True)


def _why_not_cached(
    cfg: EngineConfig, step: Step, computed: _Computed, index: int, hit: int, prefix: str
) -> Iterator[Excuse]:
    """Why a prefix that a hit needs in the group of this index may not be cached."""
    request, event, group = computed.request, step.event, cfg.groups[index]
    if not computed.ended and not isinstance(event, Schedule):
        yield choice("the request goes on, and may cache a block in its next step")
    if computed.ended and hit > computed.settled:
        yield release(
            "a request that ends or starts again does not cache what came with its last output"
        )
    if (len(prefix) - cfg.hash_lookahead_tokens) % group.block_size:
        yield END_OF_PROMPT
    if group.kind == "full":
        return
    if cfg.retention is not None:
        yield SPARSE_RETENTION
    if request.hit < hit <= request.hit + request.external:
        yield choice("of loaded tokens, only the last state and the end of a window are there")
    passed = _has_passed(request, index, len(prefix) // group.block_size)
    if group.kind == "window" and (hit <= computed.settled or passed):
        yield choice("the window has gone on since")
    at_end = isinstance(event, Schedule) and not computed.ended and hit == request.computed
    if group.kind == "mamba" and not at_end:
        yield STATE_AT_CHUNK_END


def _has_passed(request: Request, group: int, blocks: int) -> bool:
    """Whether a request has given up the last of its first `blocks` blocks in a group."""
    table = request.tables[group] if request.tables else ()
    return 0 < blocks <= len(table) and table[blocks - 1] == NULL


@check(
    "what a later hit needs of computed tokens, of prompt and answer, is cached",
    origin="vllm#52419",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.COMPUTED,),
)
def computed_tokens_are_cached(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A block is registered in the cache only up to the last boundary that all groups share,
    although hits may end between two such boundaries (vllm#52419). Whoever shares the prompt
    computes the rest again; all answers stay correct.

    A hit may end at each boundary of the tokens, of prompt and answer, that a request has computed.
    What it needs is in the cache when the step that computes it has been scheduled: each whole
    block of full attention, the blocks of a window before the boundary, the state at the boundary.
    """
    for before, after in step.touched:
        cfg = cluster.engine(after.name)
        # Cannot be judged: without a cache, and of a load that failed, which computed nothing.
        failed = isinstance(step.event, Complete) and step.event.failed
        if not cfg.prefix_caching or after.dead or failed:
            continue
        keys: set[Key] = set()
        engines = before, after
        for computed in chain(_gone_on(cfg, step, *engines), _over(cfg, step, *engines)):
            keys = keys or {key for engine in engines for key, blocks in engine.cached if blocks}
            for hit in computed.hits:
                lacking = [*missing(cfg, keys, computed.tokens + ANY, hit)]
                if not lacking:
                    yield holds()
                for index, prefix in lacking:
                    yield because(
                        reason(
                            "tokens_computed",
                            "{request} has computed tokens on {engine}, in which a hit may end "
                            "after {hit}",
                            hit=hit,
                        ),
                        reason(
                            "block_not_cached",
                            "group {group} has not cached its block that ends with token {end}",
                            end=len(prefix),
                        ),
                        excuses=_why_not_cached(cfg, step, computed, index, hit, prefix),
                        engine=after.name,
                        request=computed.request.id,
                        group=index,
                    )


@check(
    "a prefix is cached only at a length at which a hit can end",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.BOOKKEEPING,
    needs=(Need.CONTENTS,),
)
def cached_key_can_be_hit(engine: Engine, cluster: Cluster) -> Iterator[Judged]:
    """Two groups have different block sizes. At the end of a prompt, vLLM caches the last prefix
    that fits the smaller block size in the wider block too (see vllm#49125). No lookup in the group
    with the wider blocks can end inside a block, so this cache entry is never hit. It still
    occupies the hash map, and the KV events report it to routers as cached.

    The length of every cached prefix is a multiple of the group's block size, or of the hash unit
    if hits may end inside a block.
    """
    cfg, right = cluster.engine(engine.name), 0
    for index, prefix in (key for key, _ in engine.cached):
        size = cfg.hash_unit if cfg.partial_block_hits else cfg.groups[index].block_size
        if (len(prefix) - cfg.hash_lookahead_tokens) % size == 0:
            right += 1
        else:
            yield because(
                reason(
                    "is_cached", "prefix {prefix:quoted} of group {group} is cached on {engine}"
                ),
                reason(
                    "no_hit_ends_there",
                    "a hit in blocks of {size} tokens cannot end there",
                    size=size,
                ),
                engine=engine.name,
                group=index,
                prefix=prefix,
            )
    yield holds(right)
