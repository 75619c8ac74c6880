"""A real engine with a mistake in vLLM or in kvproof."""

import re
from pathlib import Path

import pytest

from tests.engine.injuries import printed_once
from tests.engine.mistakes import MISTAKES
from tests.engine.ordinary import pool
from tests.engine.process import OPTIONS, Answer, Process

pytestmark = [pytest.mark.live, pytest.mark.engine]

ENGINE = ["engine", "full", OPTIONS | pool()]
WORK = ["call", "tests.engine.ordinary:work"]
LEAK = "aborted_keeps_its_blocks"
FOUND = (
    "evicted_key_stays",
    "hit_is_one_block_too_long",
    "preempted_keeps_its_counter",
)
INJURIES = (
    ("kvproof.watch.notes:EngineNotes.refresh", 30),
    ("kvproof.watch.contents:Contents.write", 9),
    ("kvproof.watch.judge:Judge.look", 20),
)


def tokens(answer: Answer) -> dict[str, list[int]]:
    """The answers of a run that came to its end."""
    assert answer.error is None, answer.error
    found: dict[str, list[int]] = answer.results[-1]["tokens"]
    return found


def found(printed: str) -> str | None:
    """The first invariant that a run said to be violated, if any."""
    violation = re.search(r"VIOLATED (\w+)", printed)
    return violation[1] if violation else None


def test_a_leak_ends_a_watched_engine_and_one_without_it_answers_as_if_unwatched(
    models: Path,
) -> None:
    """One process has the three engines: to start it takes longer than to serve."""
    with Process(models) as process:
        unwatched = process.take(ENGINE, WORK)
        process.served(["call", "tests.engine.planting:watch", "raise"])
        watched = process.take(ENGINE, WORK)
        assert tokens(watched) == tokens(unwatched)
        assert found(process.printed()) is None
        process.served(["call", "tests.engine.mistakes:plant", LEAK])
        leaks = process.take(ENGINE, WORK)
    assert found(process.log) in MISTAKES[LEAK].names
    assert str(leaks.error).startswith("Violation: VIOLATED")


@pytest.mark.nightly
@pytest.mark.parametrize("mistake", FOUND)
def test_a_mistake_in_vllm_ends_a_watched_engine(mistake: str, models: Path) -> None:
    with Process(models, mode="raise") as process:
        process.served(["call", "tests.engine.mistakes:plant", mistake], ENGINE)
        process.take(WORK)
    assert found(process.log) in MISTAKES[mistake].names


@pytest.mark.nightly
def test_a_mistake_in_kvproof_changes_no_answer(models: Path) -> None:
    with Process(models, mode="record") as process:
        clean = tokens(process.take(ENGINE, WORK))
        for place, call in INJURIES:
            injury = ["call", "tests.engine.injuries:injure", place, call]
            answer = process.take(injury, ENGINE, WORK)
            assert tokens(answer) == clean
    assert process.returncode == 0
    assert all(printed_once(process.log, place) for place, _ in INJURIES), process.complaints
    assert "VIOLATED" not in process.log
