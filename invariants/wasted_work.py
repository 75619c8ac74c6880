"""Ideals of a step: it computes all that it can, and nothing again or for nobody. No engine keeps
them fully, so pairs of base and head are judged by them."""

from collections.abc import Iterator
from itertools import takewhile

from kvproof.invariants.changes import Scheduled
from kvproof.invariants.check import check
from kvproof.invariants.guards_of_requests import batch
from kvproof.invariants.room import further_blocks
from kvproof.model.because import Excuse, Judged, because, choice, holds_if, reason, release
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.events import Admit, Preempt, Schedule
from kvproof.model.severity import Severity
from kvproof.model.state import COUNTS, PREEMPTED, RUNNING, Engine, Key, Request
from kvproof.model.step import Admission, Step


@check(
    "a step computes all tokens of its requests that it has room for",
    origin="Scheduler.schedule",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def budget_is_used(of_step: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """A prompt is computed in chunks, each as long as the token budget of the step allows. A chunk
    that is shorter than it need be costs a step more, and nothing fails."""
    _, event, before, after = of_step
    cfg, served = cluster.engine(event.engine), batch(event)
    left = cfg.chunk_tokens - served.total()
    for name, count in served.items():
        was, now = before.find(name), after.find(name)
        if was is None or now is None:
            continue  # cannot be judged: a request that is new or gone shows no tokens to compare
        known = len(was.tokens) + before.placeholders(name)
        yield holds_if(not left or now.computed >= known) or because(
            reason(
                "could_compute",
                "{request} on {engine} has {undone} tokens more to compute, and {left} are "
                "left in the step",
                undone=known - now.computed,
                left=left,
            ),
            reason("gets", "the step computes {count} of its tokens", count=count),
            excuses=_why_shorter(cfg, event, after, now, count),
            engine=cfg.name,
            request=name,
        )


def _why_shorter(
    cfg: EngineConfig, event: Schedule, engine: Engine, request: Request, count: int
) -> Iterator[Excuse]:
    """The excuses of a chunk of `count` tokens that is shorter than the budget of its step."""
    if 0 < cfg.long_prefill_tokens <= count:
        yield choice("a request beside others gets no more tokens in a step")
    elif any(isinstance(made, Preempt) for made in event.chose or ()):
        yield choice("a request that had tokens of the step was preempted")
    elif cfg.aligned_group:
        yield choice("a chunk ends where a state is cached")
    elif further_blocks(cfg, request, 0) > len(engine.free):
        yield choice("the blocks are not enough for more")
    else:
        yield choice("a chunk is shorter than it need be")


@check(
    "no step computes whole blocks of tokens that the prefix cache has",
    origin="Scheduler.schedule",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def cached_tokens_are_not_computed(of_step: Scheduled, cluster: Cluster) -> Iterator[Judged]:
    """What the cache has need not be computed again: a request hits it when it is admitted. If two
    requests with one prompt are admitted before either is computed, both compute it."""
    step, event, before, after = of_step
    cfg = cluster.engine(event.engine)
    looked_up = {each.request: each.cached for each in step.effects.admissions}
    for name, count in batch(event).items():
        request = after.find(name)
        cached = {key for key, blocks in looked_up.get(name, before.cached) if blocks}
        if request is None or not cached:
            continue  # nothing could be hit
        start = request.computed - count
        again = _cached_ends(cfg, cached, request, start)
        yield holds_if(not again) or because(
            reason(
                "cached_before",
                "the cache of {engine} has the first {tokens} tokens of {request}",
                tokens=again[-1],
            ),
            reason("computes", "the step computes them from token {start} on", start=start),
            excuses=[
                _why_computed_though_cached(cfg, request, start, again[-1], name in looked_up)
            ],
            engine=cfg.name,
            request=name,
        )


def _cached_ends(cfg: EngineConfig, cached: set[Key], request: Request, start: int) -> list[int]:
    """The ends of whole blocks from token `start` on, among the computed tokens of a request, whose
    prefixes are cached in all groups of full attention: up to the first that is not."""
    full = [index for index, group in enumerate(cfg.groups) if group.kind == "full"]
    unit = max((cfg.groups[index].block_size for index in full), default=0)
    ends = range(start - start % unit + unit, request.computed + 1, unit) if unit else range(0)
    ahead = cfg.hash_lookahead_tokens
    tokens = request.tokens
    return [*takewhile(lambda n: all((g, tokens[: n + ahead]) in cached for g in full), ends)]


def _why_computed_though_cached(
    cfg: EngineConfig, request: Request, start: int, end: int, admitted: bool
) -> Excuse:
    if not admitted:
        return choice("it was admitted before these tokens were in the cache")
    if end >= len(request.tokens):
        return choice("a sample needs its last token")
    if end - start <= cfg.eagle_drop_tokens:
        return choice("a drafter computes the last block of what is cached again")
    if any(group.kind != "full" for group in cfg.groups):
        return choice("a window or a state of these tokens is not in the cache")
    return release("it is admitted, and computes tokens that are in the cache")


@check(
    "no step computes tokens of a request whose last token is under way",
    origin="Scheduler.schedule",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def no_step_comes_after_the_last_token(step: Step) -> Iterator[Judged]:
    """With async scheduling, a step is scheduled before the output of the step before has arrived.
    If that output has the last token of a request, the new step computes a token of it for nobody,
    and takes its place in the batch from another request."""
    event = step.event
    if not isinstance(event, Schedule):
        return
    engine = step.before.engine(event.engine)
    for name in batch(event) if engine.steps else ():
        request = engine.find(name)
        if request is None or request.status != RUNNING:
            continue
        flights = [flight for flight in engine.flights(name) if flight.fate == COUNTS]
        sure = sum(flight.samples for flight in flights)
        left = request.max_tokens - len(request.output)
        yield holds_if(left > max(sure, engine.placeholders(name))) or because(
            reason(
                "under_way",
                "{request} on {engine} lacks {left} tokens, and the steps in flight sample "
                "{sure} and, with drafts, up to {most}",
                left=left,
                sure=sure,
                most=engine.placeholders(name),
            ),
            reason("is_scheduled", "the step computes more of its tokens"),
            excuses=[
                choice("its last token comes only if drafts are accepted")
                if left > sure
                else release("the steps in flight have its last token")
            ],
            engine=engine.name,
            request=name,
        )


@check(
    "the blocks of a preempted request are needed in the step that preempts it",
    origin="Scheduler.schedule; vllm#43543",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def preempted_blocks_are_needed(of_step: Scheduled) -> Iterator[Judged]:
    """A preempted request computes its tokens again. If as many blocks are free after the step as
    the request gave up, the step could have done without them."""
    _, event, before, after = of_step
    free = len(after.free)
    for made in event.chose or ():
        request = before.find(made.request)
        if request is None or not isinstance(made, Preempt):
            continue
        own = sum(before.blocks[block].refs == 1 for table in request.tables for block in table)
        yield holds_if(free < own) or because(
            reason("gives_up", "{request} is preempted, and gives up {own} blocks", own=own),
            reason("free_after", "{free} blocks are free after the step", free=free),
            excuses=_why_preempted(event, made, own),
            engine=before.name,
            request=request.id,
        )


def _why_preempted(event: Schedule, preempted: Preempt, own: int) -> Iterator[Excuse]:
    """The excuses of a step that does not need the `own` blocks of a request that it preempts."""
    given = [made for made in event.chose or () if not isinstance(made, Admit)]
    if preempted.request == preempted.needy:
        yield choice("it lacked a block itself, and nobody else was to be preempted for it")
    elif any(isinstance(made, Preempt) and made.request == preempted.needy for made in given):
        yield choice("the request that needed its blocks was preempted after it")
    elif sum(len(blocks) for made in given for blocks in made.freed) > own:
        yield choice("other blocks were given back in the same step")
    else:
        yield release("the step preempts a request, and the blocks that were free are enough")


@check(
    "a preempted request does not compute the tokens of whole blocks again",
    origin="Scheduler._preempt_request; vllm#43543",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
)
def preempted_tokens_are_kept(step: Step, cluster: Cluster) -> Iterator[Judged]:
    """A preempted request gives its blocks back, and they stay in the prefix cache. If it is
    admitted again before others take them, it finds there what it had computed. A request that has
    output had computed all of its tokens but the last."""
    for admission in step.effects.admissions:
        request = step.before.engine(admission.engine).find(admission.request)
        if request is None or request.status != PREEMPTED or not request.output:
            continue  # cannot be judged: nothing says how many tokens it had computed
        cfg = cluster.engine(admission.engine)
        computed = max(len(request.tokens) - 1 - cfg.eagle_drop_tokens, 0)
        due = computed - computed % cfg.hit_unit
        found = admission.hit + admission.external
        yield holds_if(found >= due) or because(
            reason(
                "had_computed",
                "{request} on {engine} had computed {due} tokens in whole blocks",
                due=due,
            ),
            reason("finds", "it is admitted again, and finds {found}", found=found),
            excuses=_why_computed_again(cfg, admission, due),
            engine=admission.engine,
            request=request.id,
        )


def _why_computed_again(cfg: EngineConfig, admission: Admission, due: int) -> Iterator[Excuse]:
    """The excuses of an admission that finds fewer than `due` tokens of a preempted request."""
    keys = {key for key, blocks in admission.cached if blocks}
    ahead = cfg.hash_lookahead_tokens
    lost = any(
        (index, admission.tokens[: end + ahead]) not in keys
        for index, group in enumerate(cfg.groups)
        for end in range(group.block_size, due + cfg.eagle_drop_tokens + 1, group.block_size)
        if group.kind == "full"
    )
    if not cfg.prefix_caching:
        yield choice("prefix caching is off")
    elif lost:
        yield choice("some of its blocks are not in the cache any more")
    elif any(group.kind != "full" for group in cfg.groups):
        yield choice("a window or a state of it is not kept where these tokens end")
    else:
        yield release("all of its blocks are in the cache, and it computes them again")
