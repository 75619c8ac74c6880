"""Carries out a plan. Where its blocks are counted, it is started twice: first with plenty of
memory, which shows the size of a block and the blocks of a request, and then as the plan describes.
Then its clients send their messages.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from msgspec.structs import replace

from kvproof.live import adapt, blame
from kvproof.live.contract.lookup import last_line
from kvproof.live.core.engine import ALONE, PLENTY_BYTES, REFUSALS, Engine, Store
from kvproof.live.core.episode import played
from kvproof.live.death import death_of, place
from kvproof.live.endless import watched
from kvproof.live.marks import mark
from kvproof.live.observer import shown
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import LoneRequest, LoneStep, Startup, TakenBlock, Together
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.state import NULL

STEPS_MAX = 400

IDLE_MAX = 8
"""The number of steps that schedule nothing, more than can be in flight, after which a request
counts as waiting for ever."""

PLENTY_BLOCKS = 200
"""The number of blocks for which the first start has memory, as if all layers were as large as the
largest."""

TOKENS_MAX = 1_000
"""More tokens than a request of a plan has that vLLM's own start-up plans."""

CONFIG_CHECK = "validate_block_size"
"""The check of the config, which refuses by an assertion too."""


def carried_out(
    plan: EnginePlan,
    undriven: list[AdapterDrift] | None = None,
    store: Store | None = None,
) -> list[Startup | Played]:
    """The starts of a plan, in order: two, or only the first if its request does not end, or if the
    number of blocks is given. Then, if the last start serves, its loop with the actions of the
    plan. Raises AdapterDrift, also where vLLM refuses an engine of given sizes. Where only the loop
    cannot be driven, the starts are returned alone if there is a list `undriven`, to which the
    AdapterDrift is added. `store` is that of the plan, if it has one."""
    if not plan.layers:
        return []
    starts, engine = _given(plan, store) if plan.is_given else _planned(plan, store)
    if engine is None:
        return [*starts]
    with closing(engine):
        if not (plan.actions or plan.is_given):
            return [*starts]
        try:
            return [*starts, played(plan, engine)]
        except AdapterDrift as drift:
            if undriven is None:
                raise
            undriven.append(drift)
            return [*starts]


def _given(plan: EnginePlan, store: Store | None) -> tuple[list[Startup], Engine | None]:
    """The start of an engine of given sizes, and the engine."""
    memory = PLENTY_BYTES
    if plan.auto:  # some releases fit to the memory alone, others to the given blocks too
        memory = plan.blocks * max(each.content_bytes * each.block for each in plan.layers)
    start, engine = _start(plan, plan.blocks, [memory] * len(plan.workers()), store)
    return [start], engine


def _planned(plan: EnginePlan, store: Store | None) -> tuple[list[Startup], Engine | None]:
    """The starts of a plan whose blocks are counted, and the engine of the last one if it serves
    its request and the plan describes it. A connector may have no place for layers of some kinds,
    which is no mistake of the start-up: where plenty of memory is refused with a connector, the
    engine is started without one, and no messages come."""
    count = len(plan.workers())
    largest = max(e.content_bytes * (1 if e.kind == "mamba" else e.block) for e in plan.layers)
    plenty = [PLENTY_BLOCKS * largest * len(plan.layers)] * count
    first = _once(replace(plan, auto=False), plenty, store)
    if first.refused and (plan.connected or plan.store):
        starts, engine = _planned(replace(plan, connected=False, store=""), None)
        if engine is not None:
            engine.close()
        return starts, None
    if first.run is None or not first.run.ended:
        return [first], None
    from_ = first.run.held_max + 1 if plan.counted_from == "need" else first.enough_blocks
    blocks = max(from_ + plan.blocks, 1)
    memory = [
        each.block_bytes * (blocks + plan.more * (at == plan.richer % count))
        + min(plan.odd_bytes, each.block_bytes - 1)
        for at, each in enumerate(first.workers)
    ]
    second, engine = _start(plan, blocks, plenty if plan.override else memory, store)
    second = second._replace(groups=first.groups, in_flight_tokens=first.in_flight_tokens)
    if second.run is not None and not second.run.ended:
        if engine is not None:
            engine.close()
        tokens, engine = second.run.tokens, None
        once = replace(plan, auto=False, override=False, max_model_len=tokens)
        again = _once(once, plenty, store)
        held = again.run.held_max if again.run else 0
        second = second._replace(lacks=max(held + 1 - second.num_blocks, 0))
    if engine is not None and second.together is not None and not second.together.ended:
        engine.close()
        engine = None
    return [first, second], engine


def alone(engine: Engine, call_begins: Callable[[], None]) -> LoneRequest:
    """Run one request of the largest length, alone, to its end."""
    tokens = engine.max_model_len
    answer = engine.answer_alone
    prompt = tokens - answer
    request = engine.add(engine.request(ALONE, range(1, prompt + 1), answer))
    manager = engine.core.scheduler.kv_cache_manager
    free, held, idle = engine.free_blocks, 0, 0
    clean: set[int] = {NULL}
    new: set[TakenBlock] = set()
    marks: list[int] = []
    steps: list[LoneStep] = []

    def began(output: Any) -> None:
        nonlocal held, idle, clean, new
        held = max(held, free - engine.free_blocks)
        erased = adapt.zeroed(output)
        tables = manager.get_block_ids(ALONE)
        if count := output.num_scheduled_tokens.get(ALONE, 0):
            named = (frozenset(n for n, b in enumerate(table) if b != NULL) for table in tables)
            end = request.num_computed_tokens
            steps.append(LoneStep(end - count, end, tuple(named)))
        for group, table in enumerate(tables):
            if erased is not None:
                new |= {TakenBlock(group, b, b in erased) for b in {*table} - clean}
            clean |= {*table}
        idle = 0 if output.total_num_scheduled_tokens else idle + 1

    engine.executor.began = began
    for _ in range(STEPS_MAX):
        call_begins()
        engine.step()
        marks.append(engine.mark(map(shown.plain, _answers(engine))))
        if request.is_finished() or idle > IDLE_MAX:
            break
    ended, computed = request.is_finished(), request.num_computed_tokens
    seen = tuple(sorted(new)), tuple(marks), prompt, tuple(steps)
    return LoneRequest(tokens, ended, held, computed, *seen)


def together(engine: Engine, number: int, call_begins: Callable[[], None]) -> Together:
    """Run so many requests of the largest length at once, to their ends. No two prompts begin
    alike."""
    size = engine.max_model_len - engine.answer_alone
    firsts = (TOKENS_MAX * n for n in range(1, number + 1))
    requests = [
        engine.add(engine.request(f"{ALONE}{n}", range(n, n + size), engine.answer_alone))
        for n in firsts
    ]
    idle = preempted = 0

    def began(output: Any) -> None:
        nonlocal idle, preempted
        preempted += len(output.preempted_req_ids or ())
        idle = 0 if output.total_num_scheduled_tokens else idle + 1

    engine.executor.began = began
    for _ in range(STEPS_MAX):
        call_begins()
        engine.step()
        deque(_answers(engine), maxlen=0)
        if all(each.is_finished() for each in requests) or idle > IDLE_MAX:
            break
    return Together(number, all(each.is_finished() for each in requests), preempted)


def _answers(engine: Engine) -> Iterator[Any]:
    """The outputs for clients since the last call, which an observed engine records."""
    for outputs in engine.outputs():
        if engine.observed is not None:
            engine.observed.answered(outputs)
        yield outputs


def _made(engine: Engine) -> dict[str, Any]:
    """What a start-up has made, as fields of its facts."""
    caches, executor = engine.caches, engine.executor
    return {
        "num_blocks": caches.made.num_blocks,
        "max_model_len": engine.max_model_len,
        "known_tokens": executor.known_tokens,
        "concurrency": caches.concurrency,
        "workers": tuple(
            map(caches.worker, engine.plan.workers(), executor.memory, executor.configs)
        ),
        "groups": caches.groups,
        "in_flight_tokens": engine.in_flight_steps * engine.plan.chunk_tokens,
        "marks": (mark(map(shown.plain, (caches.made, *executor.configs))),),
    }


def _once(plan: EnginePlan, memory: Sequence[int], store: Store | None) -> Startup:
    """The start of an engine that is not used any more."""
    start, engine = _start(plan, None, memory, store)
    if engine is not None:
        engine.close()
    return start


def _start(
    plan: EnginePlan, blocks: int | None, memory: Sequence[int], store: Store | None = None
) -> tuple[Startup, Engine | None]:
    """Start an engine, and run one request on it unless its sizes are given. If its number of
    blocks is known, then run as many at once as vLLM reports to fit. Without an engine, it was
    refused or has died."""
    start = Startup(plan, blocks)
    engine: Engine | None = None
    try:
        with watched() as call_begins:
            engine = Engine(plan, memory, blocks if plan.override else None, store)
            start = start._replace(**_made(engine))
            if not plan.is_given:
                start = start._replace(run=alone(engine, call_begins))
            number = min(int(start.concurrency or 0), plan.requests)
            if blocks is not None and start.run is not None and start.run.ended and number > 1:
                start = start._replace(together=together(engine, number, call_begins))
            return start, engine
    except Exception as error:
        if engine is not None:
            with suppress(Exception):  # it may have died
                engine.close()
        interruption.check()
        blame.spare(error)
        if plan.is_given and blame.is_refusal(error):
            why = f"This vLLM refuses an engine of given sizes ({last_line(error)})"
            raise AdapterDrift(why, "EngineCore") from error
        if isinstance(error, REFUSALS) or place(error).name == CONFIG_CHECK:
            return start._replace(refused=str(error).split(". ")[0]), None
        return start._replace(died=death_of(error)), None
