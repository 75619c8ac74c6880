"""The device of the connector kit: what is replaced, when copies are made, who waits, and what a
slot of its memory is."""

import ctypes
import mmap
import queue
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kvproof.live import build
from kvproof.live.connectors.caches import NUMBERS_MAX, Numbers, slots
from kvproof.live.fakes import copies, replaced
from kvproof.live.fakes.clock import Clock, ModelOrder
from kvproof.live.fakes.copies import IllegalAccess, swap_blocks_batch
from kvproof.live.fakes.replaced import REPLACED, device, found
from kvproof.live.fakes.store_client import Memory, StoreClient
from kvproof.live.fakes.streams import Event, Stream
from kvproof.live.fakes.threads import QueueModule
from kvproof.model.config import Group
from kvproof.model.plans.connector import Copies


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


def test_a_stream_that_waits_for_another_runs_after_it() -> None:
    with device(Clock(Copies(late=True, steps=1))):
        done: list[str] = []
        first, second = Stream(), Stream()
        first.add(lambda: done.append("first"))
        second.wait_stream(first)
        second.add(lambda: done.append("second"))
        second.synchronize()
        assert done == ["first", "second"]


def test_a_wait_without_end_is_an_error_and_no_hang() -> None:
    clock = Clock(Copies())
    items = QueueModule(clock).Queue()
    with pytest.raises(RuntimeError, match="waits for a thread"):
        items.get()
    with pytest.raises(queue.Empty):
        items.get_nowait()


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
        copied = order.take()
        assert (copied.number, len(copied.again)) == (1, again)
    order.forget_copies()  # what was ordered before is copied at any time from now on
    for _ in range(2):
        order.read("a store", ctypes.addressof(memory), 4, 0, lambda: False)
    assert [each.reset for each in order.take().again] == [True]


def test_buffers_of_the_host_hold_nothing_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import (
        NixlBaseConnectorWorker,
    )

    def begin(worker: SimpleNamespace, kv_caches: dict[str, torch.Tensor]) -> None:
        worker.host_xfer_buffers = {name: torch.ones_like(each) for name, each in kv_caches.items()}

    monkeypatch.setattr(NixlBaseConnectorWorker, "initialize_host_xfer_buffer", begin)
    worker = SimpleNamespace()
    replaced.emptied(Clock(Copies()))(worker, kv_caches={"layer": torch.ones(2)})
    assert not worker.host_xfer_buffers["layer"].any()


def left_of(folder: Path, names: list[str], written: range) -> set[bytes]:
    """The content of what is left in a memory that has lost a part: files with these names, with
    the content of each number, and one that describes them."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for name, number in zip(names, written, strict=False):
        (folder / f"{name}.bin").write_bytes(bytes([number]))
    Memory(folder).forget(part=True)
    assert (folder / "config.json").exists()
    return {path.read_bytes() for path in folder.glob("*.bin")}


def test_what_two_vllms_have_stored_both_lose_or_both_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreClient, "made", [])
    numbers = range(20)
    names = [f"{number:02}" for number in numbers]
    left = left_of(tmp_path / "base", names, numbers)
    assert 0 < len(left) < len(numbers)
    assert left_of(tmp_path / "other names", names[::-1], numbers) == left
    one_less = {each for each in left if each[0] > 0}
    assert left_of(tmp_path / "one less", names, numbers[1:]) == one_less
    store = StoreClient()
    store.kept.update((name, bytes([number])) for name, number in zip(names, numbers, strict=True))
    Memory(tmp_path / "base").forget(part=True)
    assert {*store.kept.values()} == left


def test_a_file_is_gone_however_the_paths_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = pytest.importorskip("vllm.v1.kv_offload.tiering.fs.io")
    monkeypatch.setattr(home, "batch_load_block", lambda *given, **named: (given, named))
    clock = Clock(Copies())
    read = replaced._read_files(clock)
    clock.files_gone = 2
    assert read([], b"", [0]) == (([], b"", [0]), {})
    assert clock.files_gone == 2
    for given, named in (([["one"]], {}), ([], {"source_paths": ["one"], "offsets": [0]})):
        (tmp_path / "one").touch()
        monkeypatch.chdir(tmp_path)
        read(*given, **named)
        assert not (tmp_path / "one").exists()
    assert clock.files_gone == 0


# A copy to or from memory that nobody has allocated ends the engine, and not the process


def moved(*moves: tuple[int, int, int]) -> None:
    sources, targets, sizes = (torch.tensor(each) for each in zip(*moves, strict=True))
    swap_blocks_batch(sources, targets, sizes)


def test_a_copy_beyond_the_end_of_a_tensor_is_an_illegal_access() -> None:
    clock = Clock(Copies())
    with device(clock):
        held, room = torch.zeros(8, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
        held += 7
        moved((held.data_ptr(), room.data_ptr(), 4))
        assert room.tolist() == [7, 7, 7, 7]
        with pytest.raises(IllegalAccess, match=r"1 of 1 parts of a copy"):
            moved((held.data_ptr(), room.data_ptr() + 2, 4))
        with pytest.raises(IllegalAccess, match=r"1 of 2 parts of a copy"):
            moved((held.data_ptr(), room.data_ptr(), 2), (held.data_ptr() + 7, room.data_ptr(), 2))
        assert room.tolist() == [7, 7, 7, 7]


def test_a_copy_of_memory_that_was_given_back_is_an_illegal_access() -> None:
    with device(Clock(Copies())), mmap.mmap(-1, mmap.PAGESIZE) as pages_of_host:
        room = torch.zeros(4, dtype=torch.uint8)
        held = torch.frombuffer(memoryview(pages_of_host), dtype=torch.uint8)
        address = held.data_ptr()
        moved((address, room.data_ptr(), 4))
        del held
        pages_of_host.close()
        with pytest.raises(IllegalAccess, match="given back"):
            moved((address, room.data_ptr(), 4))


def test_a_copy_after_an_engine_has_freed_its_memory_spoils_nothing() -> None:
    with device(Clock(Copies())):
        held, room = torch.ones(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
        target, freed = room.data_ptr(), StorageWeakRef(room.untyped_storage())
        del room
        moved((held.data_ptr(), target, 4))
        assert not freed.expired()


# Slots


PAGE_BYTES = 128


def test_a_state_ends_where_the_padding_of_its_page_begins() -> None:
    """A connector that copies a state without the padding has copied all of it."""
    spec = build.spec_of(Group("mamba", 4), page_bytes=PAGE_BYTES)
    pages = torch.zeros(3, 1, 1, PAGE_BYTES, dtype=torch.int8)
    states = slots(pages, spec)
    assert states.shape[:2] == (3, 1)
    bytes_of_state = states[0].numel() * states.element_size()
    assert bytes_of_state == build.spec_of(Group("mamba", 4)).page_size_bytes < PAGE_BYTES
    pages[1, ..., bytes_of_state:] = 7
    assert not states.any()
    pages[1, ..., :bytes_of_state] = 7
    assert states[1].all()
    assert not states[[0, 2]].any()


def test_a_prefix_has_the_same_number_in_every_process() -> None:
    """A store that outlives its engine still has the KV of its tokens."""
    one, other = Numbers(), Numbers()
    prefixes = [*accumulate("abcdefgh")]
    pairs = [(f"layers.{layer}.attn", prefix) for layer in range(2) for prefix in prefixes]
    first = [one.of(*pair) for pair in pairs]
    assert [other.of(*pair) for pair in reversed(pairs)] == first[::-1]
    assert len({*first}) == len(pairs)
    assert [one.home(float(number)) for number in first] == pairs
    assert one.prefix("layers.1.attn", first[0]) is None


def test_two_prefixes_never_have_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.live.connectors.caches.crc32", lambda _: NUMBERS_MAX - 2)
    numbers = Numbers()
    assert [numbers.of("layer", prefix) for prefix in "abc"] == [NUMBERS_MAX - 1, 1, 2]
    assert [numbers.prefix("layer", number) for number in (1.0, 2.0)] == ["b", "c"]
    assert [numbers.prefix("layer", number) for number in (3.0, 0.5)] == [None, None]
