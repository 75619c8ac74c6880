"""A step serves those whom it has room for, unless there is a reason not to."""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.changes import Scheduled
from kvproof.invariants.check import check
from kvproof.invariants.guards_of_requests import batch
from kvproof.model.because import Excuse, Judged, because, choice, holds, reason, release
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import incoming, is_reverse
from kvproof.model.events import Admit, Compute, Preempt, Release
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import (
    FAILED,
    LATE,
    LOADED,
    PAUSED,
    PREEMPTED,
    RUNNING,
    WAITING,
    Engine,
    Request,
)

READY = (WAITING, PREEMPTED, LOADED, FAILED)
"""Statuses in which a step may admit a request."""


def has_pending_output(engine: Engine, name: str) -> bool:
    """Whether a token that was sampled before the preemption has not arrived yet."""
    return any(flight.fate == LATE for flight in engine.flights(name))


def further_blocks(cfg: EngineConfig, request: Request, ahead: int) -> int:
    """Upper bound of the further blocks that a request needs for its tokens and `ahead` more. It
    includes the lookahead slots of a drafter; for a Mamba group, a state, its copy and one state
    for each draft."""
    tokens = len(request.tokens) + ahead + cfg.lookahead + cfg.drafts
    tables = request.tables or ((),) * len(cfg.groups)
    return sum(
        max(blocks_begun(tokens, group.block_size) - len(table), 0)
        if group.attention
        else 2 + cfg.drafts
        for group, table in zip(cfg.groups, tables, strict=True)
    )


def _least_blocks(cfg: EngineConfig, request: Request) -> int:
    """Blocks without which a request can compute no further token: those that the token begins,
    and a first state in a Mamba group."""
    tables = request.tables or ((),) * len(cfg.groups)
    return sum(
        max(blocks_begun(request.computed + 1, group.block_size) - len(table), 0)
        if group.attention
        else not table
        for group, table in zip(cfg.groups, tables, strict=True)
    )


def _to_compute(engine: Engine, request: Request) -> int:
    """Tokens of a running request that a step could compute; 0 if its pending output is its last,
    even if all of its drafts are rejected."""
    pending = engine.placeholders(request.id)
    if pending and len(request.output) + 1 >= request.max_tokens:
        return 0
    return len(request.tokens) + pending - request.computed


class _Rest(NamedTuple):
    """What a step leaves over, and who could have had it: the requests that are not `done`, which
    means that the step neither schedules them nor preempts them.

    `left` are tokens. `given_back` blocks are free after the step, and `all_along` already while it
    is made. `running` has requests in the order of their queue; `waiting` has those for which the
    batch has a place.
    """

    cluster: Cluster
    cfg: EngineConfig
    made: Scheduled
    done: set[str]
    left: int
    given_back: int
    all_along: int
    running: list[Request]
    waiting: list[Request]


def _rest_of(cluster: Cluster, cfg: EngineConfig, made: Scheduled, left: int) -> _Rest:
    before, after = made.before, made.after
    done = {each.request for each in made.choices if isinstance(each, Admit | Compute | Preempt)}
    runners = filter(None, map(before.find, before.running))
    places = cfg.max_requests - len(after.running)
    paused = sum(r.status == PAUSED for r in before.requests)
    waiting = (r for r in before.requests if r.id not in done and _can_be_admitted(before, r))
    free = len(after.free)
    # The worker copies a block before the step, and its source is free only then.
    usable = free - sum(copy.engine == cfg.name for copy in made.step.effects.copies)
    preempts = any(isinstance(each, Preempt) for each in made.choices)
    return _Rest(
        cluster,
        cfg,
        made,
        done,
        left,
        free,
        usable if preempts else min(len(before.free), usable),
        [r for r in runners if r.id not in done and _to_compute(before, r) > 0],
        list(waiting) if places > paused else [],
    )


def _can_be_admitted(engine: Engine, request: Request) -> bool:
    """Whether a step may admit a request. No step may where output from before a preemption is
    pending (`admitted_request_was_waiting`)."""
    return request.status in READY and not has_pending_output(engine, request.id)


def _why_runner_waits(rest: _Rest, request: Request) -> Iterator[Excuse]:
    """The excuses of a step that passes over a running request."""
    queue, cfg = rest.made.before.running, rest.cfg
    place = queue.index(request.id)
    in_front = {*queue[:place]}
    for made in rest.made.choices:
        if isinstance(made, Preempt) and made.request == made.needy in in_front:
            yield release("a request in front of it gave up its own blocks, and the step ended")
        if isinstance(made, Release) and made.request in in_front:
            yield choice("a request in front of it lacked blocks, and nobody could give it any")
    lacks = [
        each
        for each in rest.running
        if further_blocks(cfg, each, rest.made.before.placeholders(each.id)) > rest.all_along
    ]
    if any(each.id in in_front for each in lacks):
        yield choice("a request in front of it may lack blocks, and requests are served in order")
    if request in lacks:
        yield choice("the blocks may not be enough for all of its tokens and drafts")
    if len(request.output) + rest.made.before.placeholders(request.id) >= request.max_tokens:
        yield choice("the output that it waits for may be its last")
    yield from _too_few_left(rest)


def _too_few_left(rest: _Rest) -> Iterator[Excuse]:
    if rest.left < max((g.block_size for g in rest.cfg.groups if g.aligned), default=1):
        yield choice("fewer tokens are left than a block of states has, and chunks end with one")


def _without_copies(rest: _Rest) -> int:
    """The free blocks but for those that copies may take: one for each group of those who wait."""
    return rest.all_along - len(rest.cfg.groups) * len(rest.waiting)


def _why_not_admitted(rest: _Rest) -> Iterator[Excuse]:
    """The excuses of a step that leaves requests waiting."""
    cfg = rest.cfg
    if any(isinstance(made, Preempt) for made in rest.made.choices):
        yield choice("a request was preempted, and an admission might take what it gave up")
    if any(isinstance(made, Release) for made in rest.made.choices):
        yield choice("a running request lacks blocks")
    if rest.left <= cfg.drafts:
        yield choice("fewer tokens are left than a sample has with its drafts")
    needed = sum(further_blocks(cfg, r, r.max_tokens) for r in rest.waiting)
    if needed > rest.all_along:
        yield choice("the blocks may not be enough for all who wait, with all of their tokens")
    elif needed + cfg.watermark_blocks > rest.all_along:
        yield choice("the blocks that are free are those of the watermark")
    if cfg.partial_block_hits and _without_copies(rest) < needed:
        yield choice("a hit that ends inside a block takes a block more, for the copy")
    yield from _too_few_left(rest)
    if cfg.connected:
        yield from _why_not_loaded(rest, needed)
    if cfg.aligned_group and any(_may_hit_a_new_state(rest, request) for request in rest.waiting):
        yield choice("one who waits may hit a state that this step writes, and all wait for it")


def _why_not_loaded(rest: _Rest, needed: int) -> Iterator[Excuse]:
    """The excuses of a step that begins no load for those who wait, who need `needed` blocks. Who
    loads cannot be preempted, so a load takes no blocks that others need for all of their tokens,
    those to come among them."""
    others = (r for r in rest.made.after.requests if r.tables)
    if needed + sum(further_blocks(rest.cfg, r, r.max_tokens) for r in others) > rest.all_along:
        yield choice("a load would take blocks that others need for their tokens")
    if any(_turn_has_loaded(rest, request) for request in rest.waiting):
        yield release("a follow-up turn asks again for tokens whose only transfer is over")


def _turn_has_loaded(rest: _Rest, request: Request) -> bool:
    """Whether the transfer from which a follow-up turn may load is over, well or not."""
    name = incoming(rest.cluster, rest.cfg.name, request.id)
    over = rest.made.step.before.phase(name) in (Phase.CLOSED, Phase.REFUSED, Phase.ABANDONED)
    return is_reverse(name) and over


def _may_hit_a_new_state(rest: _Rest, request: Request) -> bool:
    """Whether a request could hit a state of another request that the step computes."""
    shortest = request.tokens[: rest.cfg.hit_unit]
    others = filter(None, map(rest.made.before.find, rest.done))
    return any(other.tokens.startswith(shortest) for other in others)


@check(
    "a step schedules every request that it has room for",
    origin="vllm#49206",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.ROOM,),
)
def room_is_used(made: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """The loop over the running requests lost its position after a preemption, and skipped the next
    request for one step (vllm#49206). Nothing fails; the skipped request is late by one step each
    time.

    A request has room where tokens are left in the batch, where the blocks for its next token are
    free after the step, and where a request that waits finds a place in the batch. A scheduler may
    choose to leave this room unused. A running request may lack blocks for all of its tokens, or
    one in front of it may, also if nobody is preempted for it: blocks of a request with a step in
    flight are freed too late. The output that a request waits for may be its last. After a
    preemption, waiting requests may be left to the next step; so they may where not all of them
    fit, where the watermark keeps the blocks, where a load would take what others need, or where
    one of them may hit a state that the step writes. A chunk that ends with a block of states, or a
    sample with its drafts (vLLM's `pad_spec_decode`), needs more tokens than one.

    A step of vLLM also ends where a request preempts itself, and serves no running request behind
    it. A follow-up turn waits for another load where its only load is over. No reason is known for
    either.
    """
    cfg, served = cluster.engine(made.after.name), batch(made.event)
    yield holds(len(served))
    left = cfg.chunk_tokens - served.total()
    if left <= 0:
        return
    rest = _rest_of(cluster, cfg, made, left)
    for request in (*rest.running, *rest.waiting):
        if _least_blocks(cfg, request) <= rest.given_back:
            runs = request.status == RUNNING
            yield because(
                reason(
                    "has_room",
                    "{request} on {engine} is {status}, the step has {left} tokens "
                    "left, and {free} blocks are free",
                    status=request.status,
                    left=left,
                    free=rest.given_back,
                ),
                reason("not_scheduled", "the step does not schedule it"),
                excuses=_why_runner_waits(rest, request) if runs else _why_not_admitted(rest),
                engine=cfg.name,
                request=request.id,
            )
