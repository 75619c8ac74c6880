"""Whose fault an exception is, and how the adapter drives a vLLM of another form."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from kvproof.live import blame
from kvproof.live import contract_check as contract
from kvproof.live.death import DoesNotEnd
from kvproof.live.fakes.nixl import CopyingAgent
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Complete, Event, Schedule, Submit, TransferDone, TransferFail
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, LATE, LOADED, VOID, Flight
from tests.driving import taken
from tests.in_vllm import SCHEDULER, around, instead
from tests.watching import live_machine

pytestmark = pytest.mark.live


OFFERED: tuple[Event, ...] = (
    *(Submit("P", "r0"), Schedule("P"), Complete("P")),
    *(Submit("D", "r0"), Schedule("D")),
)
READ = (*OFFERED, TransferDone("r0"))
ENDS = f"{SCHEDULER}._update_from_kv_xfer_finished"


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract.Contract, "require", lambda _self, _features: None)


def driven(events: tuple[Event, ...], preset: str = "pd-full") -> dict[str, str]:
    """Which engine of a cluster is dead after these events, and what of."""
    machine = taken(live_machine(CLUSTERS[preset]), *events)
    return {engine.name: engine.dead.words for engine in machine.state.engines if engine.dead}


@pytest.mark.parametrize("engine", ["P", "D"])
def test_the_engine_has_died_whose_call_raised(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = "finished_sending" if engine == "P" else "finished_recving"

    def raising(right: Any, self: Any, output: Any) -> Any:
        if getattr(output, reported):
            raise RuntimeError("out of luck")
        return right(self, output)

    around(ENDS, raising)(monkeypatch)
    # This file is no part of the adapter, so that what it raises is taken for vLLM's.
    assert driven(READ) == {engine: "RuntimeError in raising: out of luck"}


def test_what_vllm_misses_in_itself_is_its_own_death(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Any, *_args: Any, **_more: Any) -> Any:
        return None.num_computed_tokens  # type: ignore[attr-defined]

    instead(ENDS, broken)(monkeypatch)
    assert list(driven(READ)) == ["D"]


OURS, CHECK, HOOK = "live/driver/node.py", "invariants/blocks.py", "live/observer/hooks.py"
DEVICE, VLLM = "live/fakes/peers.py", "/vllm/v1/core/sched/scheduler.py"


def made(file: str, does: str, takes: str = "", **names: Any) -> Any:
    """A function that stands in a file of kvproof or of vLLM, and does one thing."""
    path = file if file.startswith("/") else str(Path(blame.__file__).parents[1] / file)
    exec(compile(f"def function({takes}): {does}", path, "exec"), names)
    return names["function"]


def hooked(called: Any) -> Any:
    """A function of vLLM with a hook around it, which passes on what it gets."""
    return made(HOOK, "return called(*args, **named)", "*args, **named", called=called)


class Config:
    """An object of vLLM that looks its attributes up."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name, name=name, obj=self)


class Sized(NamedTuple):
    """A tuple of vLLM."""

    size: int


@dataclass
class Planned:
    """A dataclass of vLLM."""

    size: int


@pytest.mark.parametrize(
    ("file", "does", "ours"),
    [
        (VLLM, "manager.block_pool", False),
        (OURS, "manager.block_pool", True),
        (OURS, "hooked(made(VLLM, 'manager.block_pool', manager=manager))()", False),
        (VLLM, "Config().size", False),
        (OURS, "Config().size", True),
        (VLLM, "hooked(Sized)(length=1)", False),
        (OURS, "hooked(Sized)(length=1)", True),
        (VLLM, "with_fields(Planned(1), length=1)", False),
        (OURS, "with_fields(Planned(1), length=1)", True),
        (VLLM, "__import__('vllm.v1.core.gone')", False),
        (OURS, "__import__('vllm.v1.core.gone')", True),
        (OURS, "ThreadPoolExecutor(1).submit(made(VLLM, '{}[1]')).result()", False),
        (VLLM, "made(CHECK, '{}[1]')()", True),
        (VLLM, "made(OURS, '{}[1]')()", True),
        (OURS, "made(DEVICE, '{}[1]')()", False),
        (VLLM, "PeerContext(None).term()", True),
        (VLLM, "raise TypeError(f'{PeerContext} cannot be sent')", True),
        (VLLM, "raise TypeError(f'{type(manager)} cannot be sent')", False),
    ],
)
def test_whose_exception_it_was(file: str, does: str, ours: bool) -> None:
    """Also a name of the contract is vLLM's to miss where its own code asks for it: whoever renames
    it in all places but one has broken it."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    from kvproof.live.fakes.peers import PeerContext  # needs zmq, as vLLM does

    names = {
        **globals(),
        "manager": object.__new__(KVCacheManager),
        "ThreadPoolExecutor": ThreadPoolExecutor,
        "with_fields": with_fields,
        "PeerContext": PeerContext,
    }
    with pytest.raises((AttributeError, TypeError, ImportError, KeyError)) as raised:
        made(file, does, **names)()
    assert blame.is_ours(raised.value) is ours


def test_a_call_of_vllm_that_does_not_end_is_its_own() -> None:
    assert not blame.is_ours(DoesNotEnd(made(VLLM, "return").__code__, 1, "it does not end"))


@pytest.mark.usefixtures("_unchecked")
def test_what_vllm_misses_of_the_contract_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    monkeypatch.delattr(KVCacheManager, "get_block_ids")
    with pytest.raises(AdapterDrift) as raised:
        driven(READ)
    assert raised.value.entry == "KVCacheManager.get_block_ids"
    assert "get_block_ids" in str(raised.value)


WRITTEN = (OFFERED[0], *OFFERED[3:], *OFFERED[1:3], TransferDone("r0"))
"""D registers its blocks, and P writes to them."""


WAYS = {"pd-full": READ, "push-full": WRITTEN}


@pytest.mark.parametrize("preset", WAYS)
def test_a_call_of_nixl_that_its_fake_lacks_is_not(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM catches what NIXL raises, and would go on as if the network had failed."""
    monkeypatch.delattr(CopyingAgent, "make_prepped_xfer")
    with pytest.raises(AdapterDrift, match="asks kvproof's stand-in for CopyingAgent") as raised:
        driven(WAYS[preset], preset)
    assert raised.value.entry == "CopyingAgent.make_prepped_xfer"


@pytest.mark.parametrize(
    "call",
    [
        *("get_new_notifs", "send_notif", "make_prepped_xfer", "transfer", "check_xfer_state"),
        *("get_xfer_telemetry", "release_xfer_handle"),
    ],
)
@pytest.mark.parametrize("preset", WAYS)
def test_a_call_of_nixl_may_have_one_more_argument(
    call: str, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, times = getattr(CopyingAgent, call), []

    def with_more(*args: Any, **named: Any) -> Any:
        times.append(call)
        return right(*args, **named, one_more=1)

    monkeypatch.setattr(CopyingAgent, call, with_more)
    machine = taken(live_machine(CLUSTERS[preset]), *WAYS[preset])
    assert times
    assert machine.state.engine("D").request("r0").status == LOADED
    assert not machine.state.transfers


# Older forms of vLLM, which are made here


FAILING: tuple[Event, ...] = (
    *(Submit("P", "r0"), Schedule("P"), Complete("P"), Submit("D", "r0"), Schedule("D")),
    TransferFail("r0"),
)


def share(fate: str = COUNTS, samples: bool = True) -> Flight:
    return Flight("r0", 1, samples, fate)


@pytest.mark.parametrize(
    ("dropped", "shares", "fates"),
    [
        (0, [share(), share()], [COUNTS, COUNTS]),
        (0, [share(LATE), share()], [LATE, COUNTS]),
        (1, [share(VOID), share()], [VOID, COUNTS]),
        (0, [share(VOID), share()], [LATE, COUNTS]),
        (2, [share(VOID), share()], [VOID, VOID]),
        (1, [share(VOID, samples=False), share(VOID)], [VOID, VOID]),
    ],
)
def test_without_counters_the_noted_fates_count_and_the_outputs_that_vllm_drops(
    dropped: int, shares: list[Flight], fates: list[str]
) -> None:
    from kvproof.live.observer import view

    class Older:
        """A request of a vLLM that counts the outputs to drop, and no stale tokens."""

        request_id = "r0"
        status = view.RequestStatus.RUNNING
        async_tokens_to_discard = dropped

    class Holds:
        """A scheduler with this request."""

        def __init__(self) -> None:
            self.requests = {"r0": Older()}

    assert [f.fate for f in view.fates(Holds(), "r0", shares)] == fates


def test_a_preemption_is_noted_for_the_steps_in_flight() -> None:
    machine = live_machine(CLUSTERS["async"])
    (node,) = machine.nodes.values()
    for event in (Submit("E", "r0"), Schedule("E")):
        machine.take(event)
    node.recorder.preempted.add("r0")
    node.note_stale(LATE)
    assert [s.fate for _, shares in node.queue for s in shares] == [LATE]
    assert not node.recorder.preempted


def test_the_retention_interval_is_in_the_environment_only_while_a_scheduler_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvproof.live import adapt

    monkeypatch.setenv(adapt.RETENTION_VARIABLE, "64")
    for interval in (None, 0, 8):
        with adapt.retention_variable(interval):
            found = os.environ.get(adapt.RETENTION_VARIABLE)
            assert found == (None if interval is None else str(interval))
        assert os.environ[adapt.RETENTION_VARIABLE] == "64"
    with pytest.raises(AdapterDrift, match="refuses the config"), adapt.retention_variable(0):
        raise ValueError(f"{adapt.RETENTION_VARIABLE} is set. Unset it")
    assert os.environ[adapt.RETENTION_VARIABLE] == "64"


def test_a_scheduler_that_did_not_take_the_interval_is_drift() -> None:
    from kvproof.live import adapt

    class Dense:
        """A coordinator without sparse retention."""

        retention_interval = None

    adapt.check_retention(Dense(), None)
    with pytest.raises(AdapterDrift, match="does not take the retention interval"):
        adapt.check_retention(Dense(), 0)


@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_a_failed_read_is_reported_by_its_blocks(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D's scheduler learns from the blocks that the load of the request failed. A worker of today
    has both reports."""
    from kvproof.live import adapt

    monkeypatch.setattr(adapt, "reports_failed_reads", lambda: False)
    full = CLUSTERS["pd-full"]
    machine = live_machine(replace(full, name="older", load_failure=policy, failures=1))
    for event in FAILING:
        step = machine.take(event)
    found = step.after.engine("D").find("r0")
    assert not any(engine.dead for engine in step.after.engines)
    if policy == "fail":
        assert found is None
    else:
        assert found is not None
        assert (found.status, found.computed) == ("failed", 0)


def test_a_key_that_every_router_leaves_out_is_missed_by_its_reader() -> None:
    from kvproof.live.death import place
    from kvproof.live.fake import FakeParams

    params = FakeParams(known=1)
    params.left_out = ("blocks",)
    with pytest.raises(AdapterDrift):
        params["unknown"]
    with pytest.raises(KeyError) as missed:
        params["blocks"]
    reader = "test_a_key_that_every_router_leaves_out_is_missed_by_its_reader"
    assert place(missed.value).name == reader
