"""Sentences are for people: other words change no verdict, no signature and no exit code, facts do,
and each sentence has the values that it names."""

import ast
import functools
import string
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

import kvproof
from kvproof.invariants.slots import content
from kvproof.live.connectors.judging import mixed_up
from kvproof.model import wording
from kvproof.model.because import About, reason
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding, signature
from kvproof.model.machine import ModelMachine
from kvproof.model.traces.trace import Trace
from kvproof.strategies.conformance.replay import replay
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.witnesses import witnesses
from tests.planted import under

ROOMS = ("model", "invariants", "strategies", "live")
ROOT = Path(kvproof.__file__).parent


def test_other_words_change_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS["align_split_during_load"]
    run = next(witnesses([fault]))
    trace = Trace(run.cluster, run.events, finding=run.finding, faults=(fault.name,))

    def found() -> list[Any]:
        made = under([fault], sample, run.cluster, ModelMachine, examples=10, seed=1)
        again = under([fault], replay, ModelMachine(run.cluster), trace)
        assert made.finding is not None
        named = signature(run.cluster, made.events[-1], made.finding)
        judged = [made.verdict, made.exit_code(), made.events, made.finding, named]
        return [*judged, again.exit_code(), again.outcome.finding, again.parted]

    before, said, theirs = found(), run.finding.sentence, wording.worded
    monkeypatch.setattr(wording, "worded", lambda *given: theirs(*given)[::-1])
    assert run.finding.sentence != said
    assert found() == before


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
