"""A vLLM that calls its own methods with one more argument runs like any other: what kvproof wraps
passes on whatever it is given."""

import functools
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_events import NullEventPublisher
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.core.kv_cache_manager import KVCacheManager

from kvproof.live.connectors.episode import play
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.core.starts import carried_out
from kvproof.live.machine import LiveMachine
from kvproof.live.observer.hooks import Given, hooked
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Admit, Complete, Schedule, Submit
from kvproof.model.plans.connector import ConnectorPlan, ResetCache, RunSteps, SubmitRequest
from kvproof.model.plans.random_engines import GIVEN, random_engine
from kvproof.model.presets import CLUSTERS
from tests.connectors.store import Store
from tests.in_vllm import SCHEDULER, Change, line

pytestmark = pytest.mark.live


def calls_with_one_more(caller: str, called: str) -> Change:
    """A method of vLLM passes one more argument to what it calls."""
    more = f"__import__('functools').partial({called}, one_more=1)("
    return line(caller, f"{called}(", more)


def takes_one_more(patch: pytest.MonkeyPatch, kind: type, name: str, times: list[str]) -> None:
    """A method of vLLM takes one more argument, and is called with it."""
    method = getattr(kind, name)

    @functools.wraps(method)
    def taking(*args: Any, one_more: int, **kwargs: Any) -> Any:
        times.append(name * one_more)
        return method(*args, **kwargs)

    patch.setattr(kind, name, taking)


OF_CONNECTOR = {
    "get_num_new_matched_tokens": "schedule",
    "update_state_after_alloc": "schedule",
    "take_events": "update_from_output",
    "reset_cache": "reset_connector_cache",
    "request_finished": "_connector_finished",
}
"""The methods of a connector that the kit wraps, and which method of the scheduler calls each."""


@pytest.mark.parametrize("name", OF_CONNECTOR)
def test_a_connector_gets_one_more_argument(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[str] = []
    takes_one_more(monkeypatch, Store, name, times)
    caller = f"{SCHEDULER}.{OF_CONNECTOR[name]}"
    calls_with_one_more(caller, f"self.connector.{name}")(monkeypatch)
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=16)
    request = SubmitRequest(0, 6)
    actions = request, RunSteps(4), ResetCache(), request, RunSteps(4), ResetCache(connector=True)
    plan = ConnectorPlan(engine, actions)
    result = play(TestedConnector("tests.connectors.store:Store"), plan)
    assert times
    assert not result.findings


def test_a_subscriber_of_events_gets_one_more_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[str] = []
    takes_one_more(monkeypatch, NullEventPublisher, "publish", times)
    caller = f"{SCHEDULER}.update_from_output"
    calls_with_one_more(caller, "self.kv_event_publisher.publish")(monkeypatch)
    cluster = next(c for c in CLUSTERS.values() if c.engines[0].kv_events and not c.disaggregated)
    name = cluster.engines[0].name
    machine = LiveMachine(cluster)
    for event in (Submit(name, cluster.jobs[0].name), Schedule(name), Complete(name)):
        assert machine.take(event).after.engine(name).dead is None
    machine.close()
    assert times


def test_a_hit_that_is_passed_by_its_place_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its name, as the scheduler passes it today."""
    between = ",\n" + 16 * " "
    named = "num_new_local_computed_tokens", "new_computed_blocks=new_computed_blocks"
    placed = "num_new_local_computed_tokens", "new_computed_blocks"
    old = "num_new_computed_tokens=" + between.join(named)
    line(f"{SCHEDULER}.schedule", old, between.join(placed))(monkeypatch)
    machine = LiveMachine(CLUSTERS["full"])
    first, second, *_ = (job.name for job in CLUSTERS["full"].jobs)
    for event in (Submit("E", first), Schedule("E"), Complete("E"), Submit("E", second)):
        machine.take(event)
    chose = machine.take(Schedule("E")).event.chose or ()
    machine.close()
    [admitted] = [choice for choice in chose if isinstance(choice, Admit)]
    assert admitted.local_hit > 0


LOOPS = (
    ("make_stats", "self.kv_cache_manager.make_prefix_cache_stats", KVCacheManager),
    ("_update_from_kv_xfer_finished", "self.connector.update_connector_output", None),
)


@pytest.mark.parametrize(("caller", "called", "kind"), LOOPS)
def test_a_loop_calls_with_one_more_argument(
    caller: str, called: str, kind: type | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[str] = []
    name = called.rpartition(".")[2]
    for each in [kind] if kind else _declaring(KVConnectorBase_V1, name):
        takes_one_more(monkeypatch, each, name, times)
    calls_with_one_more(f"{SCHEDULER}.{caller}", called)(monkeypatch)
    for number in range(40):
        assert carried_out(random_engine(number, GIVEN))[-1].died is None, number
        if times:
            return
    raise AssertionError("it was never called")


def _declaring(kind: type, name: str) -> Iterator[type]:
    """The classes below one that declare a method, the imported ones."""
    if name in vars(kind):
        yield kind
    for each in kind.__subclasses__():
        yield from _declaring(each, name)


def test_the_queue_of_a_loop_is_asked_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = "self.input_queue.get(block=block)"
    longer = "self.input_queue.get(block=block, timeout=60.0)"
    line("vllm.v1.engine.core:EngineCoreProc._process_input_queue", waits, longer)(monkeypatch)
    assert carried_out(random_engine(0, GIVEN))[-1].died is None


def test_an_argument_that_is_gone_is_drift() -> None:
    publisher = NullEventPublisher(0)
    with pytest.raises(AdapterDrift, match="has no parameter 'batch'"):
        hooked(publisher, "publish", "batch")
    read: list[object] = []
    hooked(publisher, "publish", "events", before=read.append)
    publisher.publish(1)
    publisher.publish(events=1)
    assert read == [1, 1]
    with pytest.raises(AdapterDrift, match="without 'events'"):
        publisher.publish()


def test_a_method_that_hides_its_parameters_is_read_in_the_order_of_vllm() -> None:
    """As a method is that somebody has wrapped without `functools.wraps`."""

    def hides(*_args: Any, **_kwargs: Any) -> None: ...

    given = Given(hides, "request", "num_new_tokens")
    assert given.get(("r0", 4), {}, "num_new_tokens", 0) == 4
    assert given.get(("r0",), {"num_new_computed_tokens": 2}, "num_new_computed_tokens", 0) == 2
    assert given.get(("r0", 4), {}, "num_new_computed_tokens", 0) == 0
    with pytest.raises(AdapterDrift, match="hides its parameters, and is called with 3"):
        given.get(("r0", 4, 2), {}, "num_new_computed_tokens", 0)
