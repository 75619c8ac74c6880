"""Sentences are for people: facts are compared and words are not, and each sentence has the values
that it names."""

import ast
import functools
import string
from pathlib import Path

import pytest
from msgspec.structs import asdict

import kvproof
from kvproof.invariants.slots import content
from kvproof.live.connectors.judging import mixed_up
from kvproof.model.because import About, reason
from kvproof.model.finding import Finding

ROOMS = ("model", "invariants", "strategies", "live")
ROOT = Path(kvproof.__file__).parent


def test_facts_are_compared_and_words_are_not() -> None:
    one = reason("holds", "{request} holds {blocks}", blocks=[1, 2])
    assert one == reason("holds", "the blocks {blocks} are held", blocks=(1, 2))
    assert hash(one) == hash(reason("holds", "", blocks=(1, 2)))
    assert one != reason("holds", "{request} holds {blocks}", blocks=[1, 3])
    assert one != reason("lacks", "{request} holds {blocks}", blocks=[1, 2])
    assert Finding("c", (one,), About("E")) != Finding("c", (one,), About("P"))


@functools.cache
def stated() -> list[tuple[str, str, str, set[str]]]:
    """Each `reason` of the code: the file and the function or class that states it, its kind, its
    sentence and the names of its values."""
    found = []
    for path in (path for room in ROOMS for path in (ROOT / room).resolve().rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for part in ast.parse(text).body if "reason(" in text else ():
            where = f"{path}: {getattr(part, 'name', '')}"
            for node in ast.walk(part):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "reason":
                    given = [getattr(each, "value", None) for each in node.args[:2]]
                    if len(given) == 2 and all(isinstance(each, str) for each in given):
                        found.append((where, *given, {each.arg or "" for each in node.keywords}))
    return found


def test_each_sentence_has_what_it_needs() -> None:
    known = set(asdict(About()))
    assert len(stated()) > 150
    for where, kind, says, facts in stated():
        gaps = {name for _, name, _, _ in string.Formatter().parse(says) if name}
        assert gaps <= facts | known, (where, kind, gaps - facts - known)


@pytest.mark.parametrize(
    ("right", "found", "whose"),
    [
        ("salt:abc", "abc", "another salt's KV"),
        ("ab:c", "salt:ab:c", "another salt's KV"),
        ("lora:ab:c", "ab:c", "another adapter's KV"),
        ("lora:abc", "salt:abc", "another adapter's KV"),
        ("model:salt:abc", "model:abc", "another salt's KV"),
        ("model:abc", "abc", ""),
        ("ab:c", "ab", ""),
        ("salt:abc", "salt:abd", ""),
    ],
)
def test_what_differs_beside_the_tokens_is_named(right: str, found: str, whose: str) -> None:
    both = reason("", "", right=content(right), found=content(found))
    assert mixed_up(Finding("", (both,))) == whose
