"""Hooks change nothing for who calls a method, replaces it or copies its owner."""

import copy
import pickle
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from kvproof.live.observer.hooks import Hooks


class Pool:
    """The owner of a method with a hook."""

    def __init__(self) -> None:
        self.freed: list[int] = []

    def free(self, blocks: Iterable[int], *, last: bool = False) -> int:
        """Take blocks back."""
        self.freed += list(blocks)
        return len(self.freed) + last


class Seen:
    """Hooks around `Pool.free`, which read its iterator before the method does."""

    def __init__(self, pool: Pool) -> None:
        self.blocks: list[list[int]] = []
        self.events: list[str] = []
        self.mistakes: list[BaseException] = []
        self.by_hand: list[str] = []
        self.hooks = Hooks(self.ended, self.mistakes.append, self.by_hand.append)
        self.hooks.add(pool, "free", self.frees, event=True)

    def ended(self, what: str, _: Exception | None) -> None:
        self.events.append(what)

    def frees(self, blocks: Iterable[int], **named: Any) -> Generator[Any, Any, None]:
        read = list(blocks)
        self.blocks.append(read)
        yield (read,), named


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def seen(pool: Pool) -> Seen:
    return Seen(pool)


def test_an_iterator_is_read_once_however_it_is_passed(pool: Pool, seen: Seen) -> None:
    assert pool.free(iter([1, 2]), last=True) == 3
    assert pool.free(blocks=iter([3])) == 3
    assert pool.freed == [1, 2, 3]
    assert seen.blocks == [[1, 2], [3]]
    assert seen.events == ["free", "free"]
    assert not seen.mistakes


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool))])
def test_a_copy_of_the_owner_is_not_watched(copied: Any, pool: Pool, seen: Seen) -> None:
    other = copied(pool)
    assert other.free([1]) == 1
    assert (other.freed, pool.freed) == ([1], [])
    assert not seen.blocks


def test_a_method_that_the_class_gets_later_is_called(
    pool: Pool, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Pool, "free", lambda self, blocks: (self, list(blocks)))
        assert pool.free([1]) == (pool, [1])
    assert pool.free([1]) == 1
    assert seen.by_hand == ["free was replaced"]
    assert not seen.blocks


def test_an_engine_is_not_watched_any_further_after_a_hook_was_replaced(
    pool: Pool, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Pool()
    seen.hooks.add(other, "free", seen.frees, event=True)
    with monkeypatch.context() as patched:
        patched.setattr(other, "free", lambda blocks: list(blocks))
        assert other.free([1]) == [1]
        assert pool.free([2]) == 1
    assert seen.by_hand == ["free was replaced"]
    assert not seen.blocks
