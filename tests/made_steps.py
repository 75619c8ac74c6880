"""Steps made by hand from steps of the reference, and those that tell the guards apart."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Compute, Event, Evict, Schedule, Submit, TransferDone
from kvproof.model.machine import ModelMachine
from kvproof.model.phases import Phase
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import PREEMPTED, RUNNING, SENDING
from kvproof.model.step import Step

JOBS = (Job("r0", "abcd", 2), Job("r1", "abcdef", 2))
FULL = (Group("full", 2),)
ONE = Cluster("one", (EngineConfig("E", FULL, 12, chunk_tokens=8),), JOBS, evictions=True)
PAIR = Cluster(
    "pair", (EngineConfig("P", FULL, 12, "prefill"), EngineConfig("D", FULL, 12, "decode")), JOBS
)
OFFERED = (Submit("P", "r0"), Schedule("P"), Complete("P"), Submit("D", "r0"))
SERVED = (Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1"))

Made = tuple[Cluster, Step]


def last(cluster: Cluster, *events: Event) -> Step:
    """The last step of the reference that takes these events."""
    machine = ModelMachine(cluster)
    return [machine.take(event) for event in events][-1]


def engine(step: Step, name: str, **changes: Any) -> Step:
    """The step with an engine that is otherwise after it."""
    engines = (e._replace(**changes) if e.name == name else e for e in step.after.engines)
    return step._replace(after=step.after._replace(engines=tuple(engines)))


def request(step: Step, name: str, **changes: Any) -> Step:
    """The step of E with a request that is otherwise after it."""
    requests = step.after.engine("E").requests
    changed = tuple(r._replace(**changes) if r.id == name else r for r in requests)
    return engine(step, "E", requests=changed)


def choice(step: Step, index: int, **changes: Any) -> Step:
    """The step with a choice that is told otherwise."""
    assert isinstance(step.event, Schedule)
    chose = list(step.event.chose or ())
    chose[index] = replace(chose[index], **changes)
    return step._replace(event=replace(step.event, chose=tuple(chose)))


def other_block(step: Step, name: str, old: int, new: int) -> Step:
    """The step in which one free block was taken instead of another."""
    names = {old: new, new: old}

    def named(value: Any) -> Any:
        if isinstance(value, tuple):
            changed = map(named, value)
            return type(value)(*changed) if hasattr(value, "_fields") else tuple(changed)
        return names.get(value, value) if type(value) is int else value

    def moved(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(values[names.get(i, i)] for i in range(len(values)))

    after, event = step.after.engine(name), step.event
    assert isinstance(event, Schedule)
    tables = tuple(r._replace(tables=named(r.tables)) for r in after.requests)
    cached = tuple((key, named(blocks)) for key, blocks in after.cached)
    chose = tuple(
        replace(c, taken=named(c.taken)) if isinstance(c, Compute) else c for c in event.chose or ()
    )
    changed = engine(
        step,
        name,
        blocks=moved(after.blocks),
        memory=moved(after.memory),
        free=named(after.free),
        cached=cached,
        requests=tables,
    )
    return changed._replace(event=replace(event, chose=chose))


def admitted() -> Step:
    """r0 is admitted, and computes its prompt."""
    return last(ONE, Submit("E", "r0"), Schedule("E"))


def hit() -> Step:
    """r1 hits what r0 has computed."""
    return last(ONE, *SERVED, Schedule("E"))


def was_preempted() -> Made:
    step = admitted()
    [waiting] = step.before.engine("E").requests
    before = step.before.engine("E")._replace(requests=(waiting._replace(status=PREEMPTED),))
    return ONE, step._replace(before=step.before._replace(engines=(before,)))


def was_running() -> Made:
    step = admitted()
    [waiting] = step.before.engine("E").requests
    before = step.before.engine("E")._replace(requests=(waiting._replace(status=RUNNING),))
    return ONE, step._replace(before=step.before._replace(engines=(before,)))


def ends_among_its_drafts() -> Made:
    """Of an answer that ends among accepted drafts those beyond its end may count, or not."""
    jobs = (Job("r0", "a", 2), Job("r1", "a..bc", 1, follows="r0"))
    cluster = CLUSTERS["turns-drafts"].carrying(*jobs)
    work = (Schedule("D"), Complete("D"), Schedule("D"), Complete("D", {"r0": 2}))
    step = last(cluster, *OFFERED, Schedule("D"), TransferDone("r0"), *work)
    [held] = step.after.engine("D").requests
    assert held.status == SENDING
    known = len(held.tokens) - 1
    assert held.computed != known
    return cluster, engine(step, "D", requests=(held._replace(computed=known),))


def entry_evicted() -> Made:
    """What r0 has computed, and left behind, is evicted by its block."""
    end = (Schedule("E"), Complete("E"), Evict("E", 1))
    return ONE, last(ONE, *SERVED[:3], *end)


def entry_lost() -> Made:
    step = last(ONE, *SERVED)
    after = step.after.engine("E")
    blocks = tuple(b._replace(key=None, also=()) for b in after.blocks)
    return ONE, engine(step, "E", blocks=blocks, cached=())


def hit_of(block: int, cached: bool) -> Made:
    """r1 is given another block, under the same prefix or under none."""
    step = hit()
    [found] = step.effects.admissions
    entries = tuple((key, (*blocks, block) if cached else blocks) for key, blocks in found.cached)
    effects = step.effects._replace(admissions=(found._replace(cached=entries),))
    [blocks] = step.event.chose[1].hit  # type: ignore[union-attr,index]
    return ONE, choice(step._replace(effects=effects), 1, hit=((block, *blocks[1:]),))


def loads(more: int) -> Made:
    step = last(PAIR, *OFFERED, Schedule("D"))
    [found] = step.effects.admissions
    wrong = found._replace(external=found.external + more)
    return PAIR, step._replace(effects=step.effects._replace(admissions=(wrong,)))


def reference_gained() -> Made:
    step = last(ONE, *SERVED)
    blocks = list(step.after.engine("E").blocks)
    blocks[5] = blocks[5]._replace(refs=1)
    return ONE, engine(step, "E", blocks=tuple(blocks))


def chunk_of(tokens: int) -> Made:
    """r1 gets another chunk than the reference gives it."""
    step = hit()
    computed = 4 + tokens
    return ONE, choice(request(step, "r1", computed=computed), 2, tokens=tokens)


def taken_in_use() -> Made:
    step = hit()
    [blocks] = step.event.chose[1].hit  # type: ignore[union-attr,index]
    return ONE, choice(step, 2, taken=(blocks[:1],))


def goes_on() -> Made:
    step = last(ONE, *SERVED[:3], Schedule("E"), Complete("E"))
    [was] = step.before.engine("E").requests
    return ONE, engine(step, "E", requests=(was._replace(output=".."),))


def table_of(block: int) -> Made:
    step = hit()
    [table] = step.after.engine("E").request("r1").tables
    return ONE, request(step, "r1", tables=((*table[:-1], block),))


def d_changed() -> Made:
    step = last(PAIR, Submit("P", "r0"), Schedule("P"))
    return PAIR, engine(step, "D", running=("r0",))


def in_phase(phase: Phase) -> Made:
    """D loads what P offers, and the transfer comes into this phase."""
    step = last(PAIR, *OFFERED, Schedule("D"))
    [transfer] = step.after.transfers
    after = step.after._replace(transfers=(transfer._replace(phase=phase),))
    return PAIR, step._replace(after=after)


def one(step: Step) -> Made:
    return ONE, step


def pair(*events: Event) -> Made:
    return PAIR, last(PAIR, *events)


EXAMPLES: dict[str, tuple[Callable[[], Made], Callable[[], Made]]] = {
    "admitted_request_was_waiting": (was_preempted, was_running),
    "computed_tokens_are_those_scheduled": (
        ends_among_its_drafts,
        lambda: one(request(admitted(), "r0", computed=3)),
    ),
    "entry_is_lost_with_its_block": (entry_evicted, entry_lost),
    "event_stays_on_its_engine": (
        lambda: pair(*OFFERED, Schedule("D"), TransferDone("r0")),
        d_changed,
    ),
    "hit_blocks_are_cached": (lambda: hit_of(9, cached=True), lambda: hit_of(9, cached=False)),
    "load_is_offered": (lambda: loads(-1), lambda: loads(1)),
    "only_a_step_takes_blocks": (lambda: one(last(ONE, *SERVED[:3])), reference_gained),
    "output_is_what_was_sampled": (
        ends_among_its_drafts,
        lambda: one(request(last(ONE, *SERVED[:3]), "r0", output="..")),
    ),
    "request_ends_with_its_last_token": (ends_among_its_drafts, goes_on),
    "status_follows_the_event": (
        was_preempted,
        lambda: one(request(last(ONE, *SERVED), "r0", status=PREEMPTED)),
    ),
    "step_keeps_its_limits": (lambda: chunk_of(1), lambda: chunk_of(9)),
    "table_keeps_its_blocks": (
        lambda: one(other_block(admitted(), "E", 1, 7)),
        lambda: table_of(9),
    ),
    "taken_blocks_were_free": (lambda: one(other_block(admitted(), "E", 2, 8)), taken_in_use),
    "transfer_follows_the_table": (
        lambda: in_phase(Phase.RELEASING),
        lambda: in_phase(Phase.LOST),
    ),
}
"""By guard a step that is allowed, and is not what the reference does, and one that is not."""
