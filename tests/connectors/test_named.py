"""Events of stored blocks: the tokens that they have, and those of their hashes."""

from typing import Any, NamedTuple

import pytest

pytest.importorskip("vllm")

from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from kvproof.connectors.listeners import NamedPrefixes
from kvproof.model.facts.connectors import EventMisread


class Known(NamedTuple):
    """What is asked of a request: its tokens, and a hash for each two of them."""

    all_token_ids: list[int]
    block_hashes: list[bytes]


class Event(NamedTuple):
    """What is asked of an event."""

    block_hashes: list[Any]
    token_ids: list[int]
    block_size: int


HASHES = [bytes([n]) * 8 for n in range(1, 4)]
NAMES = list(map(maybe_convert_block_hash, HASHES))


@pytest.fixture
def named() -> NamedPrefixes:
    prefixes = NamedPrefixes(2)
    prefixes.add(Known(list(map(ord, "abcdefg")), HASHES))
    return prefixes


def judged(named: NamedPrefixes, names: list[Any], tokens: str, size: int) -> list[Any]:
    return list(named.judged(Event(names, list(map(ord, tokens)), size)))


def test_each_hash_has_the_last_tokens_of_its_prefix(named: NamedPrefixes) -> None:
    assert judged(named, NAMES, "abcdef", 2) == [None] * 3
    assert judged(named, NAMES[1:2], "abcd", 4) == [None]
    assert judged(named, NAMES[2:], "f", 2) == [None]  # a prefix that ends inside a block


def test_tokens_of_another_block_are_named(named: NamedPrefixes) -> None:
    assert judged(named, NAMES[2:], "ab", 2) == [EventMisread("ab", "abcdef")]
    assert judged(named, NAMES[:2], "cdab", 2) == [
        EventMisread("cd", "ab"),
        EventMisread("ab", "abcd"),
    ]


def test_a_hash_of_no_known_request_is_not_judged(named: NamedPrefixes) -> None:
    assert judged(named, [maybe_convert_block_hash(b"\x09" * 8)], "zz", 2) == []
    assert judged(named, NAMES[:1], "", 2) == []
