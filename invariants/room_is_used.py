"""The loop over the running requests lost its position after a preemption, and skipped the next
request for one step (vllm#49206). Nothing fails; the skipped request is late by one step each time.

The invariant judges only steps without a lack of blocks, with tokens left in the batch and more
free blocks than any policy would reserve. A running request that may lack blocks ends the step,
even if nobody is preempted for it: blocks of a request with a step in flight are freed too late. A
step that preempts must also serve the running requests that have room, unless a request had to
preempt itself: then the step ends there. After a preemption it may leave the waiting requests to
the next step. They are also judged only if room is the only condition of their admission: not under
P/D, with a store, with sessions or with Mamba groups, where a request may wait for another request
of the same step. With a drafter, an admitted request with one token to compute gets as many tokens
as a sample with its drafts, or waits (vLLM's `pad_spec_decode`): a batch with fewer tokens left has
no room for it.
"""

from collections.abc import Iterable, Iterator

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Choice, Compute, Preempt, Release, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import LATE, PREEMPTED, WAITING, Engine, Request
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def _blocks(cfg: EngineConfig, request: Request, ahead: int) -> int:
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


def _to_compute(engine: Engine, request: Request) -> int:
    """Tokens of a running request that a step could compute; 0 if its pending output is its last,
    even if all of its drafts are rejected."""
    pending = engine.placeholders(request.id)
    if pending and len(request.output) + 1 >= request.max_tokens:
        return 0
    return len(request.tokens) + pending - request.computed


def _may_be_done(engine: Engine, request: Request) -> bool:
    """Whether the pending output of a request may have its last token. A step may serve it then,
    and may leave it out."""
    return len(request.output) + engine.placeholders(request.id) >= request.max_tokens


def _admissible(cluster: Cluster, cfg: EngineConfig, engine: Engine) -> list[Request]:
    """The waiting requests that need only room to be admitted."""
    plain = all(group.attention for group in cfg.groups) and not cfg.has_connector
    if not plain or cluster.sessions:
        return []
    return [
        r
        for r in engine.requests
        if r.status in (WAITING, PREEMPTED)
        and not any(f.fate == LATE for f in engine.flights(r.id))
    ]


def _ends_early(choices: Iterable[Choice]) -> bool:
    """Whether a request lacked blocks and found no other request to preempt. A step serves no
    further request then."""
    return any(
        isinstance(c, Release) or (isinstance(c, Preempt) and c.request == c.needy) for c in choices
    )


def _runners(cfg: EngineConfig, engine: Engine, free: int, done: set[str]) -> Iterator[Request]:
    """The running requests that surely have tokens to compute and are not `done`, in the order of
    the running queue, up to the first that may lack blocks: a step serves nobody behind it."""
    for request in map(engine.find, engine.running):
        if request is None or request.id in done or _to_compute(engine, request) <= 0:
            continue
        if _blocks(cfg, request, engine.placeholders(request.id)) > free:
            return
        if not _may_be_done(engine, request):
            yield request


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """A step schedules each request that it has room for."""
    event = step.event
    if not isinstance(event, Schedule) or step.after.engine(event.engine).dead:
        return
    cfg, choices = cluster.engine(event.engine), event.chose or ()
    if _ends_early(choices):
        return
    preempted = {c.request for c in choices if isinstance(c, Preempt)}
    before, after = step.before.engine(cfg.name), step.after.engine(cfg.name)
    served = {c.request: c.tokens for c in choices if isinstance(c, Compute)}
    left = cfg.chunk_tokens - sum(served.values())
    # A failed load gives its blocks back after the running requests had their turn.
    free = len(after.free) if preempted else min(len(before.free), len(after.free))
    if left < max((g.block_size for g in cfg.groups if g.aligned), default=1):
        return
    could = list(_runners(cfg, before, free, {*served, *preempted}))
    waiting = _admissible(cluster, cfg, before) if left > cfg.drafts and not preempted else []
    places = cfg.max_requests - len(after.running)
    enough = sum(_blocks(cfg, r, r.max_tokens) for r in waiting) + cfg.watermark_blocks
    if places > 0 and enough <= free:
        could += waiting
    for request in could:
        ahead = before.placeholders(request.id)
        if request.id not in served and _blocks(cfg, request, ahead) <= free:
            yield because(
                reason(
                    "has_room",
                    "{request} on {engine} is {status}, the step has {left} tokens "
                    "left, and {free} blocks are free",
                    status=request.status,
                    left=left,
                    free=free,
                ),
                reason("not_scheduled", "the step does not schedule it"),
                engine=cfg.name,
                request=request.id,
            )


INVARIANT = Invariant(
    id="room_is_used",
    name="a step schedules every request that it has room for",
    origin="vllm#49206",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.ROOM,),
    subjects=(Subject.SCHEDULED, Subject.STATUS),
    killed_by="runner_is_passed_over",
)
