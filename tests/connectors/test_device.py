"""The device of the connector kit: what is replaced, when copies are made, and who waits."""

import ctypes
import queue
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

import torch

from kvproof.connectors.device import copies, host_buffers, streams
from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.mooncake import FAILED, GONE, Store
from kvproof.connectors.device.objects import ObjectAgent
from kvproof.connectors.device.order import ModelOrder
from kvproof.connectors.device.replaced import REPLACED, device, found
from kvproof.connectors.device.streams import Event, Stream
from kvproof.connectors.device.threads import QueueModule, Threads
from kvproof.connectors.plan import Copies
from kvproof.model.facts.connectors import CopiedAgain

pytestmark = pytest.mark.live


@pytest.mark.parametrize("place", [each.place for each in REPLACED if not each.other])
def test_each_replaced_name_is_one_of_this_vllm_and_is_given_back(place: str) -> None:
    home = found(place)
    assert home is not None, f"{place} is replaced, and this vLLM has no such name"
    owner, name = home
    before = getattr(owner, name)
    with device(Clock(Copies())):
        assert getattr(owner, name) is not before
    assert getattr(owner, name) == before


def copied(clock: Clock) -> tuple[torch.Tensor, Stream, Event]:
    """The target of a copy that is submitted now, with the event after it."""
    source, target = torch.full((2, 4), 7.0), torch.zeros(2, 4)
    with device(clock):
        stream, event = Stream(), Event()
        params = copies.build_params({"a": source}, {"a": target}, stream)
        copies.copy_blocks([1], [0], params)
        event.record(stream)
    return target, stream, event


def test_an_early_copy_is_made_when_it_is_submitted_and_reported_later() -> None:
    clock = Clock(Copies(late=False, steps=2))
    target, _, event = copied(clock)
    assert target[0].tolist() == [7.0] * 4
    clock.tick()
    assert not event.query()
    clock.tick()
    assert event.query()


def test_a_late_copy_is_made_just_before_it_is_reported() -> None:
    clock = Clock(Copies(late=True, steps=1))
    target, _, event = copied(clock)
    assert not event.query()
    assert target[0].tolist() == [0.0] * 4
    clock.tick()
    assert event.query()
    assert target[0].tolist() == [7.0] * 4


def test_who_waits_for_an_event_has_the_copy_and_its_report() -> None:
    target, _, event = copied(Clock(Copies(late=True, steps=5)))
    event.synchronize()
    assert target[0].tolist() == [7.0] * 4
    assert event.query()


def test_a_stream_that_waits_for_another_runs_after_it() -> None:
    with device(Clock(Copies(late=True, steps=1))):
        done: list[str] = []
        first, second = Stream(), Stream()
        first.add(lambda: done.append("first"))
        second.wait_stream(first)
        second.add(lambda: done.append("second"))
        second.synchronize()
        assert done == ["first", "second"]


def test_the_call_that_copies_by_address_copies_bytes() -> None:
    source, target = torch.arange(8.0), torch.zeros(8)
    where = [torch.tensor([each.data_ptr() + 16], dtype=torch.int64) for each in (source, target)]
    with device(Clock(Copies())):
        copies.swap_blocks_batch(*where, torch.tensor([8]), is_src_access_order_any=True)
    assert target.tolist() == [0, 0, 0, 0, 4, 5, 0, 0]


def test_the_call_that_copies_by_block_copies_blocks() -> None:
    source, target = torch.arange(8.0), torch.zeros(8)
    with device(Clock(Copies())), streams.stream(Stream()):
        copies.swap_blocks(source, target, 8, torch.tensor([[3, 0]]))
    assert target.tolist() == [6, 7, 0, 0, 0, 0, 0, 0]


def test_a_thread_works_when_the_clock_says_so() -> None:
    clock = Clock(Copies(late=True, steps=1))
    items, done = QueueModule(clock).Queue(), []

    def work() -> None:
        while True:
            done.append(items.get())

    Threads(clock).Thread(target=work).start()
    items.put("a")
    assert done == []
    clock.tick()
    assert done == ["a"]


def test_a_wait_without_end_is_an_error_and_no_hang() -> None:
    clock = Clock(Copies())
    items = QueueModule(clock).Queue()
    with pytest.raises(RuntimeError, match="waits for a thread"):
        items.get()
    with pytest.raises(queue.Empty):
        items.get_nowait()


def test_the_honest_store_gives_back_what_it_was_given_unless_it_fails() -> None:
    store = Store()
    memory = ctypes.create_string_buffer(b"abcd", 4)
    at = [[ctypes.addressof(memory)]]
    assert store.batch_put_from_multi_buffers(["k"], at, [[4]]) == [0]
    memory.raw = b"...."
    assert store.batch_get_into_multi_buffers(["other"], at, [[4]]) == [GONE]
    store.failures = 1
    assert store.batch_get_into_multi_buffers(["k"], at, [[4]]) == [FAILED]
    assert store.batch_get_into_multi_buffers(["k"], at, [[4]]) == [4]
    assert memory.raw == b"abcd"


def test_an_object_store_keeps_what_is_written_and_fails_at_the_end_of_a_copy() -> None:
    clock = Clock(Copies(late=True, steps=1))
    with device(clock):
        agent = ObjectAgent(clock, "a")
    memory = ctypes.create_string_buffer(b"abcd....", 8)
    at = ctypes.addressof(memory)
    pieces = [(at, 4, 0), (at + 4, 4, 0)]
    agent.register_memory([(at, 8, 0, "")], "DRAM")
    here = agent.prep_xfer_dlist("", pieces, "DRAM")

    def copied(operation: str, index: int, key: str) -> str:
        known = agent.register_memory([(0, 4, 1, key)], "OBJ")
        there = agent.prep_xfer_dlist("a", known.trim())
        number = agent.make_prepped_xfer(operation, here, [index], there, [0])
        assert agent.transfer(number) == agent.check_xfer_state(number) == "PROC"
        clock.tick()
        return agent.check_xfer_state(number)

    assert agent.query_memory([(0, 1, 0, "k")]) == [None]
    assert copied("WRITE", 0, "k") == "DONE"
    assert agent.query_memory([(0, 1, 0, "k")]) == [{}]
    assert copied("READ", 1, "k") == "DONE"
    assert memory.raw == b"abcdabcd"
    agent.store.kept.clear()
    assert copied("READ", 1, "k") == "ERR"
    agent.store.failures, agent.store.raises = 1, True
    with pytest.raises(RuntimeError, match="does not answer"):
        agent.release_xfer_handle(1)


def test_when_the_episode_is_over_no_copy_is_made() -> None:
    clock, done = Clock(Copies(late=True, steps=1)), list[str]()
    with device(clock):
        stream = Stream()
        stream.add(lambda: done.append("copied"))
        clock.over = True
        stream.synchronize()
    assert not done


def test_a_copy_under_way_is_made_again_only_after_a_reset() -> None:
    memory = ctypes.create_string_buffer(8)
    order = ModelOrder()
    order.caches[ctypes.addressof(memory)] = 8
    for again in (False, True):
        order.read("a store", ctypes.addressof(memory), 4, 0, lambda: False)
        assert [type(fact) for fact in order.take()] == [CopiedAgain] * again
    order.forget_copies()  # what was ordered before is copied at any time from now on
    for _ in range(2):
        order.read("a store", ctypes.addressof(memory), 4, 0, lambda: False)
    assert order.take() == []


def test_buffers_of_the_host_hold_nothing_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import (
        NixlBaseConnectorWorker,
    )

    def begin(worker: SimpleNamespace, kv_caches: dict[str, torch.Tensor]) -> None:
        worker.host_xfer_buffers = {name: torch.ones_like(each) for name, each in kv_caches.items()}

    monkeypatch.setattr(NixlBaseConnectorWorker, "initialize_host_xfer_buffer", begin)
    worker = SimpleNamespace()
    host_buffers.emptied(Clock(Copies()))(worker, kv_caches={"layer": torch.ones(2)})
    assert not worker.host_xfer_buffers["layer"].any()
