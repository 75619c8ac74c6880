"""Steps in flight of an engine whose steps overlap (async scheduling).

A step is scheduled before the output of the one ahead of it has arrived. The token that one samples
is not known yet: a *placeholder* stands for it, and the next step computes on from there, so that
the computed tokens run ahead of the known ones. Outputs arrive in the order of the steps. What a
request leaves behind while a step of its own is in flight is *settled* by that step's output only.

Sources: `AsyncScheduler`, `Scheduler._free_request_blocks` and `_drain_deferred_frees` of vLLM V1,
`EngineCore.step_with_batch_queue`. vLLM takes an output only when its queue is full or nothing can
be scheduled; here it may arrive at any time.
"""

from collections.abc import Sequence

from kvproof.model import config, memory
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.features import store
from kvproof.model.reference.rules import Rules
from kvproof.model.state import COUNTS, LATE, NULL, VOID, Engine, Flight, Request


def with_placeholders(engine: Engine, name: str, count: int) -> Engine:
    """The engine with so many placeholders of a request."""
    entries = {**dict(engine.pending), name: count}
    return engine._replace(pending=tuple(sorted((n, c) for n, c in entries.items() if c)))


def counted_on(engine: Engine, request: Request) -> int:
    """Tokens of a request that are known or pending: as many as may be computed."""
    return len(request.tokens) + engine.placeholders(request.id)


def under_way(engine: Engine, name: str) -> int:
    """Tokens of a request that steps in flight compute, and whose output will be taken."""
    return sum(f.tokens for f in engine.flights(name) if f.fate == COUNTS)


def unverified(engine: Engine, name: str) -> int:
    """Tokens of a request in flight that may be rejected: its next step may begin so much before
    where it is scheduled to."""
    return sum(f.ahead for f in engine.flights(name) if f.fate == COUNTS)


def placed(cfg: config.Engine, engine: Engine, request: Request) -> Engine:
    """The engine where the share of a request in the step in flight has the blocks that it uses to
    compute up to the computed tokens."""

    def known(flight: Flight) -> Flight:
        if flight.request != request.id or flight.fate != COUNTS:
            return flight
        return flight._replace(blocks=memory.used(cfg, request, flight.tokens))

    return engine._replace(steps=tuple(tuple(map(known, step)) for step in engine.steps))


def awaits(cfg: config.Engine, engine: Engine, name: str) -> bool:
    """Whether the worker knows which tokens of a request a new step computes only when the one
    ahead has ended, which samples, and may reject drafts."""
    return cfg.drafts > 0 and engine.placeholders(name) > 0


def all_under_way(engine: Engine, request: Request) -> bool:
    """Whether the output of a request is complete once the steps in flight have ended, though they
    accept no drafts: the token after the last known one is its last. One step is in flight where
    another may be dispatched."""
    pending = engine.placeholders(request.id)
    sampled = request.computed + 2 - pending - len(request.prompt)
    return pending > 0 and sampled >= request.max_tokens


def settled(engine: Engine, request: Request, rules: Rules) -> int:
    """Computed tokens of a request whose steps have all ended: only what these have left behind may
    be let go (vllm#47728)."""
    in_flight = sum(flight.tokens for flight in engine.flights(request.id))
    return int(rules.settled_tokens(request.computed, in_flight))


def dispatched(cfg: config.Engine, engine: Engine, scheduled: Sequence[tuple[str, int]]) -> Engine:
    """The engine with one more step in flight. Whoever has reached the end of what is known or
    pending samples a token, and gets placeholders for it and for the drafts before it; the drafts
    after it are counted on too. A store has what was computed for the steps behind this one."""
    step = []
    for name, tokens in scheduled:
        request = engine.request(name)
        ahead = request.computed - counted_on(engine, request)
        samples, ahead = ahead >= 0, max(ahead, 0)
        blocks = memory.used(cfg, request, tokens + unverified(engine, name))
        step.append(Flight(name, tokens, samples, COUNTS, blocks, ahead, request.drafts))
        doubtful = unverified(engine, name) + ahead
        engine = store.keeping(cfg, engine, request.tokens, request.computed, doubtful)
        engine = with_placeholders(engine, name, engine.placeholders(name) + samples + ahead)
        if cfg.drafts:
            engine = engine.with_request(request._replace(drafts=cfg.drafts if samples else 0))
    return engine._replace(steps=(*engine.steps, tuple(step))) if step else engine


def check_room(cfg: config.Engine, engine: Engine) -> None:
    """Raises NotAllowed where no further step may be dispatched."""
    if len(engine.steps) >= cfg.steps_in_flight:
        raise NotAllowed(f"engine {cfg.name} has {len(engine.steps)} steps in flight")


def arrived(engine: Engine, rules: Rules) -> tuple[Engine, tuple[Flight, ...]]:
    """The oldest step leaves the queue, and blocks that waited for it come free."""
    step, *rest = engine.steps
    waiting = tuple((steps - 1, blocks) for steps, blocks in engine.deferred)
    engine = engine._replace(steps=tuple(rest), deferred=tuple(w for w in waiting if w[0]))
    for steps, blocks in waiting:
        if not steps:
            engine = pool.release(engine, reversed(blocks), rules)
    return engine, step


def invalidated(engine: Engine, name: str, fate: str) -> Engine:
    """The engine after a request lost its progress: its placeholders are gone, and this is what
    becomes of its outputs under way. What is thrown away stays so."""

    def changed(flight: Flight) -> Flight:
        if flight.request != name or flight.fate == VOID:
            return flight
        return flight._replace(fate=fate)

    steps = tuple(tuple(map(changed, step)) for step in engine.steps)
    return with_placeholders(engine._replace(steps=steps), name, 0)


def awaits_output(flights: Sequence[Flight]) -> bool:
    """Whether a token of a request that was sampled before its preemption is still to come. Run
    again before, it would sample the same position twice (vllm#48245)."""
    return any(flight.fate == LATE for flight in flights)


def placeholders_due(reserved: int, late: bool) -> int:
    """Placeholders that the output of a step takes, of those that it had reserved: none where it is
    `late`, for the preemption has taken them (vllm#48245)."""
    return 0 if late else reserved


def must_wait(cfg: config.Engine, engine: Engine, name: str) -> bool:
    """Whether blocks of a request may be used by a step in flight when they are let go. Steps of
    the engine run in their order, so its own later steps cannot disturb an earlier one; a transfer
    into the blocks can, on an engine with a connector (vllm#45357)."""
    return cfg.has_connector and bool(engine.flights(name))


def give_back(cfg: config.Engine, engine: Engine, request: Request, rules: Rules) -> Engine:
    """Let go of all blocks of a request, at once or when the steps in flight have ended."""
    if must_wait(cfg, engine, request.id):
        return rules.free_behind_steps(engine, request, rules)
    return pool.release_all(engine, request, rules)


def free_behind_steps(engine: Engine, request: Request, _rules: Rules) -> Engine:
    """Let go of all blocks of a request when the steps in flight have ended (vllm#45357), last
    group first (vllm#48489)."""
    blocks = tuple(b for table in request.tables for b in table if b != NULL)
    if not blocks:
        return engine
    return engine._replace(deferred=(*engine.deferred, (len(engine.steps), blocks)))
