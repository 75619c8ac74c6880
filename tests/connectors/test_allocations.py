"""A copy to or from memory that nobody has allocated ends the engine, and not the process."""

import mmap

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.copies import IllegalAccess, swap_blocks_batch
from kvproof.live.fakes.replaced import device
from kvproof.model.plans.connector import Copies


def copied(*moves: tuple[int, int, int]) -> None:
    sources, targets, sizes = (torch.tensor(each) for each in zip(*moves, strict=True))
    swap_blocks_batch(sources, targets, sizes)


def test_a_copy_beyond_the_end_of_a_tensor_is_an_illegal_access() -> None:
    clock = Clock(Copies())
    with device(clock):
        held, room = torch.zeros(8, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
        held += 7
        copied((held.data_ptr(), room.data_ptr(), 4))
        assert room.tolist() == [7, 7, 7, 7]
        with pytest.raises(IllegalAccess, match=r"1 of 1 parts of a copy"):
            copied((held.data_ptr(), room.data_ptr() + 2, 4))
        with pytest.raises(IllegalAccess, match=r"1 of 2 parts of a copy"):
            copied((held.data_ptr(), room.data_ptr(), 2), (held.data_ptr() + 7, room.data_ptr(), 2))
        assert room.tolist() == [7, 7, 7, 7]


def test_a_copy_of_memory_that_was_given_back_is_an_illegal_access() -> None:
    with device(Clock(Copies())), mmap.mmap(-1, mmap.PAGESIZE) as pages_of_host:
        room = torch.zeros(4, dtype=torch.uint8)
        held = torch.frombuffer(memoryview(pages_of_host), dtype=torch.uint8)
        address = held.data_ptr()
        copied((address, room.data_ptr(), 4))
        del held
        pages_of_host.close()
        with pytest.raises(IllegalAccess, match="given back"):
            copied((address, room.data_ptr(), 4))


def test_a_copy_after_an_engine_has_freed_its_memory_spoils_nothing() -> None:
    with device(Clock(Copies())):
        held, room = torch.ones(4, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)
        target, freed = room.data_ptr(), StorageWeakRef(room.untyped_storage())
        del room
        copied((held.data_ptr(), target, 4))
        assert not freed.expired()
