"""Steps in flight of an engine whose steps overlap (async scheduling), and the drafts that they
verify.

A step is scheduled before the output of the step before it has arrived. The token that the earlier
step samples is not known yet: a *placeholder* represents it, and the next step continues after it.
So the computed tokens are ahead of the known tokens. Outputs arrive in the order of the steps. The
computed tokens of a request are *settled* when the outputs of its steps have arrived.

A drafter proposes tokens, and the next step verifies them (speculative decoding). A step computes
the draft tokens of a request after its known tokens. The environment chooses how many are accepted,
and the step's output reports it: accepted drafts become tokens, the others are rejected. The
drafter proposes the full number of drafts after each sampled token. Where steps overlap, a step is
scheduled as if all drafts of the step before were accepted. Its tokens are known when that step has
ended, and only then the worker executes it.

Sources: `AsyncScheduler`, `Scheduler._free_request_blocks`, `_drain_deferred_frees`,
`update_from_output` and `update_draft_token_ids` of vLLM V1, `EngineCore.step_with_batch_queue`; of
the worker `preprocess_mamba` and `postprocess_mamba_fused_kernel`, for a Mamba group in align mode.
vLLM processes an output only when its queue is full or nothing can be scheduled; in this model an
output may arrive at any time.
"""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.arithmetic import counts
from kvproof.model.environment import stores
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import pool
from kvproof.model.state import COUNTS, LATE, NULL, SAMPLED, VOID, Engine, Flight, Request


def with_placeholders(engine: Engine, name: str, count: int) -> Engine:
    """The engine with `count` placeholders of a request."""
    entries = {**dict(engine.pending), name: count}
    return engine._replace(pending=tuple(sorted((n, c) for n, c in entries.items() if c)))


def counted_on(engine: Engine, request: Request) -> int:
    """The number of known and pending tokens of a request: as many may be computed."""
    return len(request.tokens) + engine.placeholders(request.id)


def under_way(engine: Engine, name: str) -> int:
    """The number of tokens of a request in steps in flight whose output will be used."""
    return sum(f.tokens for f in engine.flights(name) if f.fate == COUNTS)


def placed(cfg: config.EngineConfig, engine: Engine, request: Request) -> Engine:
    """The engine in which the request's part of the step in flight has the blocks that it uses,
    after rejected drafts are known."""

    def known(flight: Flight) -> Flight:
        if flight.request != request.id or flight.fate != COUNTS:
            return flight
        return flight._replace(blocks=memory.used(cfg, request, flight.tokens))

    return engine._replace(steps=tuple(tuple(map(known, step)) for step in engine.steps))


def all_under_way(engine: Engine, request: Request) -> bool:
    """Whether the output of a request is complete when the steps in flight have ended, even if they
    accept no drafts. Where another step may be dispatched, exactly one step is in flight."""
    pending = engine.placeholders(request.id)
    sampled = request.computed + 2 - pending - len(request.prompt)
    return pending > 0 and sampled >= request.max_tokens


def settled(engine: Engine, request: Request) -> int:
    """The number of computed tokens of a request in ended steps. Only blocks that these tokens no
    longer need may be freed (vllm#47728)."""
    in_flight = sum(flight.tokens for flight in engine.flights(request.id))
    return int(counts.settled_tokens(request.computed, in_flight))


def dispatched(
    cfg: config.EngineConfig, engine: Engine, scheduled: Sequence[tuple[str, int]]
) -> Engine:
    """The engine with one more step in flight. A request that reaches the end of its known and
    pending tokens samples a token. It gets placeholders for that token and for the draft tokens of
    the step. The store keeps the computed tokens for later steps."""
    step = []
    for name, tokens in scheduled:
        request = engine.request(name)
        ahead = request.computed - counted_on(engine, request)
        samples, ahead = ahead >= 0, max(ahead, 0)
        blocks = memory.used(cfg, request, tokens + engine.unverified(name))
        step.append(Flight(name, tokens, samples, COUNTS, blocks, ahead, request.drafts))
        doubtful = engine.unverified(name) + ahead
        engine = stores.keeping(cfg, engine, request.tokens, request.computed, doubtful)
        engine = with_placeholders(engine, name, engine.placeholders(name) + samples + ahead)
        if cfg.drafts:
            engine = engine.with_request(request._replace(drafts=cfg.drafts if samples else 0))
    return engine._replace(steps=(*engine.steps, tuple(step))) if step else engine


def check_room(cfg: config.EngineConfig, engine: Engine) -> None:
    """Raises NotAllowed where no further step may be dispatched."""
    steps = len(engine.steps) + (engine.step is not None)
    if steps >= cfg.steps_in_flight:
        raise NotAllowed(f"engine {cfg.name} has {steps} steps in flight")


def arrived(engine: Engine) -> tuple[Engine, tuple[Flight, ...]]:
    """Remove the oldest step from the queue, and free the blocks that waited for it."""
    step, *rest = engine.steps
    waiting = tuple((steps - 1, blocks) for steps, blocks in engine.deferred)
    engine = engine._replace(steps=tuple(rest), deferred=tuple(w for w in waiting if w[0]))
    for steps, blocks in waiting:
        if not steps:
            engine = pool.release(engine, reversed(blocks))
    return engine, step


def invalidated(engine: Engine, name: str, fate: str) -> Engine:
    """The engine after a request lost its progress: it has no placeholders, and its outputs in
    flight get this fate. Outputs that are VOID stay VOID."""

    def changed(flight: Flight) -> Flight:
        if flight.request != name or flight.fate == VOID:
            return flight
        return flight._replace(fate=fate)

    steps = tuple(tuple(map(changed, step)) for step in engine.steps)
    return with_placeholders(engine._replace(steps=steps), name, 0)


def awaits_output(flights: Sequence[Flight]) -> bool:
    """Whether an output from before the preemption of a request is still pending. If the request
    ran again before that, it would sample the same position twice (vllm#48245)."""
    return any(flight.fate == LATE for flight in flights)


def placeholders_due(reserved: int, late: bool) -> int:
    """The number of placeholders that the output of a step removes: the reserved ones, or none
    where the output is `late`, because the preemption has removed them (vllm#48245)."""
    return 0 if late else reserved


def must_wait(cfg: config.EngineConfig, engine: Engine, name: str) -> bool:
    """Whether a request's blocks must stay allocated until its steps in flight have ended. Steps of
    an engine run in order, so its later steps cannot overwrite the blocks of an earlier step. On an
    engine that receives KV, a transfer into the blocks can (vllm#45357)."""
    return cfg.receives and bool(engine.flights(name))


def fate_of_preempted(produces: bool) -> str:
    """What happens to the output in flight of a preempted request. It is kept. On a producer it is
    discarded, because it could end the request, and D would load blocks that the preemption has
    freed (vllm#50297)."""
    return VOID if produces else LATE


def give_back(cfg: config.EngineConfig, engine: Engine, request: Request) -> Engine:
    """Free all blocks of a request, immediately or when the steps in flight have ended."""
    if must_wait(cfg, engine, request.id):
        return free_behind_steps(engine, request)
    return pool.release_all(engine, request)


def free_behind_steps(engine: Engine, request: Request) -> Engine:
    """Free all blocks of a request when the steps in flight have ended (vllm#45357), the last group
    first (vllm#48489)."""
    blocks = tuple(b for table in request.tables for b in table if b != NULL)
    if not blocks:
        return engine
    return engine._replace(deferred=(*engine.deferred, (len(engine.steps), blocks)))


def computable_drafts(
    cfg: config.EngineConfig, request: Request, start: int, admitted: bool
) -> int:
    """The number of tokens that a step may compute after the known tokens of a request: its drafts.
    A request that is admitted with one token left may get padding up to the width of the other
    requests; padding is no draft and is never accepted."""
    fill = admitted and len(request.tokens) - start == 1
    return cfg.drafts if fill else request.drafts


def with_drafts_of_step(request: Request, ahead: int) -> Request:
    """The request with the drafts that a step verifies. The step ends `ahead` tokens after the
    known and pending tokens; drafts after its end are dropped."""
    return request._replace(drafts=max(min(request.drafts, ahead), 0))


def lengthened(request: Request, tokens: int) -> Request:
    """The request with more sampled tokens, at most its answer in total. Dropped tokens still
    count as computed; vLLM may differ here, because the request ends."""
    tokens = min(tokens, request.answer_tokens - len(request.output))
    return request._replace(output=request.output + SAMPLED * tokens)
