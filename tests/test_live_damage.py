"""What vLLM does wrong without an exception is seen, and ends the run and not kvproof."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("vllm")

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live import endless
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.core.starts import carried_out
from kvproof.live.death import DoesNotEnd, place
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Schedule, Submit
from kvproof.model.plans.connector import ConnectorPlan, RunSteps, SubmitRequest
from kvproof.model.plans.engine import given
from kvproof.model.plans.messages import Send
from kvproof.model.plans.random_engines import COUNTED, GIVEN, random_engine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death
from kvproof.strategies.run import Run
from tests.in_vllm import POOL, SCHEDULER, around, instead
from tests.watching import live_machine

pytestmark = pytest.mark.live

SERVES = given((Send(0, "r0", 0, 4, 1),))
"""An engine of given sizes that serves a request."""


def counted_for_ever() -> None:
    for number in itertools.count():
        twice(number)


def twice(number: int) -> int:
    return sum(number for _ in range(2))


def test_the_function_that_does_not_end_is_named() -> None:
    with pytest.raises(DoesNotEnd) as raised, endless.watched():
        counted_for_ever()
    assert place(raised.value).name == counted_for_ever.__name__


def test_a_step_that_does_not_end_is_a_dead_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    instead(STEPS, without_end)(monkeypatch)
    machine = live_machine(CLUSTERS["full"])
    machine.take(Submit("E", "r0"))
    step = machine.take(Schedule("E"))
    assert step.after.engine("E").dead == Death(
        "DoesNotEnd", without_end.__name__, "it runs for more than 3 s"
    )
    [finding] = broken(machine.cluster, step, INVARIANTS.values())
    assert finding.invariant == "engine_survives"


def without_end(self: Any, *_: Any, **__: Any) -> None:
    while self is not None:
        pass


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "LIMIT_S", 0.5)


def in_a_connector() -> str:
    """What an episode of a connector dies of."""
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=16)
    plan = ConnectorPlan(engine, (SubmitRequest(0, 6), RunSteps(2)))
    [finding] = play(TestedConnector("tests.connectors.store:Store"), plan).findings
    assert finding.invariant == "engine_survives"
    return finding.sentence


def in_a_start_up() -> str:
    """What a start-up dies of."""
    [start] = carried_out(random_engine(0, COUNTED))
    return f"{start.died}"


def in_a_loop() -> str:
    """What the loop of an engine dies of."""
    return f"{carried_out(SERVES)[-1].died}"


MADE = "vllm.v1.engine.core:EngineCore._initialize_kv_caches"
STEPS = f"{SCHEDULER}.schedule"


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    ("dies_of", "place"),
    [
        (in_a_connector, STEPS),
        (in_a_connector, "tests.connectors.store:Store.update_state_after_alloc"),
        (in_a_start_up, STEPS),
        (in_a_start_up, MADE),
        (in_a_loop, STEPS),
        (in_a_loop, MADE),
    ],
)
def test_an_endless_call_is_a_death(
    dies_of: Callable[[], str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead(place, without_end)(monkeypatch)
    died = dies_of()
    assert "DoesNotEnd" in died
    assert without_end.__name__ in died


@pytest.mark.parametrize("raised", [AssertionError, ValueError])
def test_a_mistake_while_the_engine_of_a_loop_is_made_is_its_death(
    raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a scheduler is. A refusal is none."""

    def unmade(*_: Any, **__: Any) -> None:
        raise raised("no engine")

    instead(f"{SCHEDULER}.__init__", unmade)(monkeypatch)
    if raised is ValueError:
        with pytest.raises(AdapterDrift, match="ValueError: no engine"):
            carried_out(SERVES)
        return
    died = carried_out(SERVES)[-1].died
    assert died is not None
    assert (died.exception, died.function) == ("AssertionError", unmade.__name__)


@pytest.mark.usefixtures("_soon")
def test_many_calls_that_end_are_no_endless_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is one of each call, in a loop as in a start-up."""
    calls = itertools.count(1)

    def slow(right: Any, *args: Any, **kwargs: Any) -> Any:
        until = time.process_time() + 0.06
        while time.process_time() < until:
            pass
        next(calls)
        return right(*args, **kwargs)

    around(STEPS, slow)(monkeypatch)
    for number in (1, 3):  # without a connector, for which another engine computes first
        before = next(calls)
        alone = random_engine(number, {**GIVEN, "connected": False})
        assert carried_out(alone)[-1].died is None
        assert next(calls) - before > 10
    before = next(calls)
    assert not any(start.died for start in carried_out(random_engine(0, COUNTED)))
    assert next(calls) - before > 10


def test_a_free_queue_that_is_a_circle_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks go back although another request holds them, so the queue has one of them twice."""

    def free_blocks(self: Any, ordered_blocks: Any, *_: Any, **__: Any) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.is_null:
                self.free_block_queue.append(block)

    instead(f"{POOL}.free_blocks", free_blocks)(monkeypatch)
    found: set[str] = set()
    for name in ("full", "partial-tight", "window"):
        run = Run(live_machine(CLUSTERS[name]), ())
        for _ in range(60):
            if run.dead or not run.stimuli:
                break
            run.take_one(run.stimuli[0])
            found |= {
                each.invariant
                for each in broken(run.machine.cluster, run.steps[-1], INVARIANTS.values())
            }
    assert "pool_adds_up" in found
