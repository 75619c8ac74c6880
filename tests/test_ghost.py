"""Ghost state is a function of what is observed, and no machine looks at it."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.model import ghost
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Event, Evict, Schedule
from kvproof.model.faults.registry import fault_named
from kvproof.model.ghost_state import EMPTY, PREFIX_EVICTED, Ghost, Served
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.apply import apply, stimuli
from kvproof.model.reference.blocks import pool
from kvproof.model.state import (
    COUNTS,
    LATE,
    RUNNING,
    Block,
    Engine,
    Flight,
    Request,
    State,
    initial,
)
from kvproof.model.step import Admission, Effects, Step
from kvproof.model.traces.state_diff import Change
from kvproof.strategies.conformance.replay import record
from tests.findings import MODELLED, trace_of
from tests.planted import under
from tests.watching import live_machine

DRIVEN = ("events", "hybrid", "full-evicting", "async-preempting", "resetting", "partial")


def driven(machine: Machine, seed: int, steps: int) -> list[Step]:
    """A random run."""
    choose, taken = random.Random(seed), []
    while len(taken) < steps and (offered := machine.stimuli()):
        taken.append(machine.take(choose.choice(offered)))
    return taken


def observed(state: State) -> State:
    return state._replace(engines=tuple(engine.observed for engine in state.engines))


def unremembered(step: Step) -> Step:
    """A step as somebody sees it who has no memory."""
    admissions = tuple(a._replace(served=()) for a in step.effects.admissions)
    effects = step.effects._replace(admissions=admissions)
    return Step(observed(step.before), step.event, effects, observed(step.after))


def folded(cluster: Cluster, steps: list[Step]) -> Iterator[Step]:
    """The steps with ghost states computed again, from the first one on."""
    ghosts = [EMPTY for _ in cluster.engines]
    for step in map(unremembered, steps):
        engines = zip(step.before.engines, ghosts, strict=True)
        before = State(tuple(e._replace(ghost=g) for e, g in engines), *step.before[1:])
        again = ghost.remembered(cluster, step._replace(before=before))
        yield again
        ghosts = [engine.ghost for engine in again.after.engines]


def ghosts_of(steps: list[Step]) -> list[Ghost]:
    return [engine.ghost for step in steps for engine in step.after.engines]


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_ghost_of_a_run_of_the_model_can_be_computed_afterwards(name: str) -> None:
    steps = driven(ModelMachine(CLUSTERS[name]), 0, 60)
    assert list(folded(CLUSTERS[name], steps)) == steps


def test_the_recorded_runs_have_ghost_state() -> None:
    """So that the comparisons above compare something."""
    found = [
        g
        for n in (*DRIVEN, "partial-tight")
        for g in ghosts_of(driven(ModelMachine(CLUSTERS[n]), 0, 60))
    ]
    assert any(g.served for g in found)
    assert any(g.mirror for g in found)
    shared = {tokens for g in found for _, tokens in g.shared}
    assert {0, 4, PREFIX_EVICTED} <= shared


@pytest.mark.live
@pytest.mark.parametrize("name", DRIVEN)
def test_the_ghost_of_a_live_run_can_be_computed_afterwards(name: str) -> None:
    remembered = []
    for seed in range(3):
        steps = driven(live_machine(CLUSTERS[name]), seed, 60)
        assert list(folded(CLUSTERS[name], steps)) == steps
        remembered += ghosts_of(steps)
    assert any(g.served for g in remembered)
    assert any(g.mirror for g in remembered) == any(e.kv_events for e in CLUSTERS[name].engines)


def behaviour(cluster: Cluster, state: State, event: Event) -> tuple[Any, Any]:
    """What the model offers in a state, and what it does when it takes an event."""
    return list(stimuli(cluster, state)), unremembered(apply(cluster, state, event))


def reads_the_ghost(cluster: Cluster) -> bool:
    """Whether the model does in some random run what it would not do without a history."""
    choose = random.Random(cluster.name)
    for _ in range(4):
        state, taken = initial(cluster), 0
        while taken < 50 and (offered := list(stimuli(cluster, state))):
            event = choose.choice(offered)
            if behaviour(cluster, state, event) != behaviour(cluster, observed(state), event):
                return True
            state, taken = apply(cluster, state, event).after, taken + 1
    return False


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_reference_does_not_read_the_ghost(name: str) -> None:
    assert not reads_the_ghost(CLUSTERS[name])


def test_a_pool_that_reads_the_ghost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    take = pool.take

    def taking(engine: Engine, count: int) -> tuple[Engine, tuple[int, ...]]:
        if count and engine.ghost.served:
            engine = engine._replace(free=engine.free[::-1])
        return take(engine, count)

    monkeypatch.setattr(pool, "take", taking)
    assert reads_the_ghost(CLUSTERS["full-evicting"])


def history(change: Change) -> tuple[dict[str, Any], set[str]]:
    """The part of a change that concerns the ghost."""
    changed = {p: v for p, v in change.changed.items() if "/ghost/" in p}
    return changed, {p for p in change.removed if "/ghost/" in p}


@pytest.mark.parametrize("name", MODELLED)
def test_the_history_in_a_trace_is_the_one_computed_now(name: str) -> None:
    trace = trace_of(name)
    model = ModelMachine(trace.cluster)
    again = under([fault_named(name)], record, model, trace.events)
    assert again is not None
    assert trace.changes is not None
    told = list(map(history, trace.changes))
    assert list(map(history, again)) == told
    assert any(changed for changed, _ in told)


# After one step, by examples


CFG = EngineConfig("E", (Group("full", 2),), 6)
HERE = Cluster("here", (CFG,), (Job("r0", "abcd", 1), Job("r1", "abce", 1)))
AB, ABCD = (0, "ab"), (0, "abcd")
IDLE = Engine("E", (Block(),) * 6, (1, 2, 3, 4, 5))
FULL = IDLE._replace(
    blocks=(Block(), Block(0, AB), Block(0, ABCD), *(Block(),) * 3),
    cached=((AB, (1,)), (ABCD, (2,))),
)


def computing(prompt: str, output: str = "") -> Request:
    tokens = len(prompt + output)
    return Request("r0", RUNNING, prompt, 4, 1, output=output, computed=tokens, tables=((1, 2),))


def running(request: Request, remembered: Ghost = EMPTY) -> Engine:
    """A step that computes the rest of what is known of a request."""
    return FULL._replace(
        requests=(request,), running=("r0",), free=(3, 4, 5), step=(("r0", 4),), ghost=remembered
    )


def served_after(before: Engine, after: Engine, event: Event) -> list[str]:
    return [s.prompt for s in ghost.after(HERE, before, after, event, Effects()).served]


def test_a_prompt_is_served_when_its_first_token_is_sampled() -> None:
    assert served_after(running(computing("abcd")), FULL, Complete("E")) == ["abcd"]


def test_a_prompt_whose_load_failed_is_not_served() -> None:
    assert served_after(running(computing("abcd")), FULL, Complete("E", failed="r0")) == []


@pytest.mark.parametrize(("fate", "served"), [(COUNTS, ["abcd"]), (LATE, [])])
def test_with_overlapping_steps_the_oldest_counting_step_serves_a_prompt(
    fate: str, served: list
) -> None:
    flight = Flight("r0", 4, samples=True, fate=fate)
    before = running(computing("abcd"))._replace(step=None, steps=((flight,), (flight,)))
    assert served_after(before, FULL, Complete("E")) == served
    behind = before._replace(steps=((flight._replace(request="r1"),), (flight,)))
    assert served_after(behind, FULL, Complete("E")) == []


def test_served_prompts_are_forgotten_when_a_cache_entry_of_them_is_lost() -> None:
    before = FULL._replace(ghost=Ghost((Served("abcd", 0), Served("xy", 0))))
    blocks = (*FULL.blocks[:2], *(Block(),) * 4)
    without = before._replace(cached=((AB, (1,)),), blocks=blocks)
    assert served_after(before, before, Evict("E", 5)) == ["abcd", "xy"]
    assert served_after(before, without, Evict("E", 2)) == ["xy"]


def test_a_prompt_that_loses_a_block_during_its_prefill_is_not_served() -> None:
    before = running(computing("abcd"), Ghost((), (), (("r0", 2),)))
    blocks = (*before.blocks[:2], *(Block(),) * 4)
    after = before._replace(cached=((AB, (1,)),), blocks=blocks)
    lost = ghost.after(HERE, before, after, Evict("E", 2), Effects())
    assert lost.shared == (("r0", PREFIX_EVICTED),)
    assert served_after(after._replace(ghost=lost), FULL, Complete("E")) == []


@pytest.mark.parametrize(
    ("held", "now", "shared"),
    [
        ((0, "abc"), ABCD, 0),  # the block was filled further
        (AB, ABCD, PREFIX_EVICTED),  # it was evicted, and comes next in the same prompt
    ],
)
def test_a_block_under_a_longer_prefix_may_have_been_evicted(
    held: tuple[int, str], now: tuple[int, str], shared: int
) -> None:
    """A hit behind a window was freed for a load of the same request, and its block was taken for
    what is loaded. The prompt was called whole, and its next hit was missed."""
    before = running(computing("abcdef"), Ghost((), (), (("r0", 2),)))
    before = before._replace(cached=((held, (2,)),))
    after = before._replace(cached=((now, (2,)),))
    assert after.blocks[2].key == now
    left = ghost.after(HERE, before, after, Evict("E", 2), Effects())
    assert left.shared == (("r0", shared),)


@pytest.mark.parametrize("sessions", [False, True])
def test_a_session_computes_prompts_after_it_had_output(sessions: bool) -> None:
    """Its next part makes a longer prompt, of which a block was lost before."""
    before = running(computing("abcd", "."), Ghost((), (), (("r0", 2),)))
    blocks = (*before.blocks[:2], *(Block(),) * 4)
    after = before._replace(cached=((AB, (1,)),), blocks=blocks)
    lost = ghost.after(replace(HERE, sessions=sessions), before, after, Evict("E", 2), Effects())
    assert lost.shared == (("r0", PREFIX_EVICTED if sessions else 0),)
    longer = running(computing("abcd.efg"), lost)
    assert served_after(longer, FULL, Complete("E")) == ([] if sessions else ["abcd.efg"])


def admitted(tokens: str, cached: Any, external: int = 0) -> Admission:
    return Admission("E", "r0", tokens, "local", 0, external, cached)


def test_a_prompt_shares_the_prefix_that_full_attention_has_cached() -> None:
    served = (Served("abcd", 0),)
    assert ghost.shared_with(CFG, served, admitted("abce", FULL.cached)) == 2
    assert ghost.shared_with(CFG, (), admitted("abce", FULL.cached)) == 0
    assert ghost.shared_with(CFG, served, admitted("abce", ())) == 0
    # It has more of the prompt than they have in common: they part elsewhere.
    more = (*FULL.cached, ((0, "abce"), (3,)))
    assert ghost.shared_with(CFG, served, admitted("abcef", more)) == 0
    # Of a prompt that comes again, the last token is computed.
    assert ghost.shared_with(CFG, served, admitted("abcd", FULL.cached)) == 2
    assert ghost.shared_with(CFG, served, admitted("abcdd", FULL.cached)) == 4


def test_a_group_with_drafter_layers_needs_one_more_block() -> None:
    cfg = EngineConfig("E", (Group("full", 2, eagle=True),), 9, drafts=1)
    served = (Served("abcdef", 0),)
    cached = (*FULL.cached, ((0, "abcdef"), (3,)))
    assert ghost.shared_with(cfg, served, admitted("abcdefgh", cached)) == 4
    assert ghost.shared_with(cfg, served, admitted("abcdefgh", FULL.cached)) == 0


def test_an_admission_sees_the_cache_at_its_look_up() -> None:
    before = FULL._replace(ghost=Ghost((Served("abcd", 0),)))
    first, second = admitted("abce", FULL.cached), admitted("abce", FULL.cached[:1])
    whole = State((before,)), State((before._replace(free=(3, 4, 5)),))
    step = Step(whole[0], Schedule("E", ()), Effects(admissions=(first, second)), whole[1])
    told = ghost.remembered(HERE, step).effects.admissions
    assert [a.served for a in told] == [(Served("abcd", 0),), ()]
