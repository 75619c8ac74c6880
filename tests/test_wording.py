"""Sentences are for people: other words change no verdict, no signature, no recognition, no exit
code and no reproducer. Facts do."""

import ast
import functools
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

import kvproof
from kvproof.gate.difference.compare import Results, only_on
from kvproof.gate.difference.workload import follow
from kvproof.model import wording
from kvproof.model.because import About, reason
from kvproof.model.faults.registry import FAULTS
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.signature import signature
from kvproof.model.traces.trace import Trace
from kvproof.strategies.conformance.replay import replay
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.witnesses import Witness, witnesses
from tests.planted import under
from tests.two_machines import driven

ROOMS = ("model", "invariants", "strategies", "live")
ROOT = Path(kvproof.__file__).parent

FOUND = ("align_split_refuses_external", "align_split_during_load", "preemption_keeps_counter")
"""Faults that let an engine die, or stop, or count wrongly."""

Words = Callable[[], None]


@pytest.fixture
def other_words(monkeypatch: pytest.MonkeyPatch) -> Words:
    """Says everything in other words from this call on."""

    def say_otherwise() -> None:
        theirs = wording.worded
        monkeypatch.setattr(wording, "worded", lambda *given: theirs(*given)[::-1])

    return say_otherwise


@functools.cache
def witness(name: str) -> Witness:
    return next(witnesses([FAULTS[name]]))


def verdicts(name: str) -> list[Any]:
    """What sampling, a replay and a comparison find, without words."""
    fault = FAULTS[name]
    cluster = CLUSTERS[fault.cluster]
    outcome = under([fault], sample, cluster, ModelMachine, examples=10, seed=1)
    found: list[Any] = [outcome.verdict, outcome.exit_code(), outcome.events]
    if outcome.finding is not None:
        found += [outcome.finding, signature(cluster, outcome.events[-1], outcome.finding)]
    run = witness(name)
    trace = Trace(run.cluster, run.events, finding=run.finding, faults=(name,))
    again = under([fault], replay, ModelMachine(run.cluster), trace)
    found += [again.exit_code(), again.outcome.finding, again.parted]
    workload = follow(run.cluster, name, run.events)
    base, head = Results({name: driven(workload)}), Results({name: driven(workload, [name])})
    found += [[one.found.key for one in only_on(head, base, [name])], head.keys_broken]
    return found


@pytest.mark.parametrize("name", FOUND)
def test_other_words_change_no_verdict(name: str, other_words: Words) -> None:
    before, said = verdicts(name), witness(name).finding.sentence
    other_words()
    assert witness(name).finding.sentence != said
    assert verdicts(name) == before


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
