"""A real engine with a mistake in vLLM or in kvproof. All of them: benchmarks/sanitizer/."""

from pathlib import Path

import pytest

from tests.engine.injuries import printed_once
from tests.engine.mistakes import MISTAKES
from tests.engine.ordinary import pool
from tests.engine.planted import ended, found, rows, tokens
from tests.engine.process import OPTIONS, Process

pytestmark = [pytest.mark.live, pytest.mark.engine]

ENGINE = ["engine", "full", OPTIONS | pool("full")]
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


def test_a_leak_ends_a_watched_engine_and_one_without_it_answers_as_if_unwatched(
    models: Path,
) -> None:
    """One process has the three engines: to start it takes longer than to serve."""
    work = ["call", "tests.engine.ordinary:work"]
    with Process(models) as process:
        unwatched = process.take(ENGINE, work)
        process.served(["call", "tests.engine.planting:watch", "raise"])
        watched = process.take(ENGINE, work)
        assert tokens(watched) == tokens(unwatched)
        assert found(process.printed()) is None
        process.served(["call", "tests.engine.mistakes:plant", LEAK])
        leaks = process.take(ENGINE, work)
    assert found(process.log) in MISTAKES[LEAK].names
    assert ended(leaks)


@pytest.mark.nightly
def test_a_mistake_in_vllm_ends_a_watched_engine(models: Path) -> None:
    for row in rows(models, list(FOUND), alone=False):
        assert row.named_rightly, row


@pytest.mark.nightly
def test_a_mistake_in_kvproof_changes_no_answer(models: Path) -> None:
    with Process(models, mode="record") as process:
        clean = tokens(process.take(ENGINE, ["call", "tests.engine.ordinary:work"]))
        for place, call in INJURIES:
            injury = ["call", "tests.engine.injuries:injure", place, call]
            answer = process.take(injury, ENGINE, ["call", "tests.engine.ordinary:work"])
            assert tokens(answer) == clean
    assert process.returncode == 0
    assert all(printed_once(process.log, place) for place, _ in INJURIES), process.complaints
    assert "VIOLATED" not in process.log
