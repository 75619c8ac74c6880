"""What must be equal, and what the sanitizer must have done, for a test on any device."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvproof.live.watch.judge import ALL
from tests.engine.process import Answer, Process
from tests.engine.workloads import Kind, served


def is_served(work: Sequence[list[Any]], answer: Answer) -> None:
    """All was done, with preemptions, and with failed loads where there is a store."""
    assert answer.error is None, answer.error
    for action, result in zip(work, answer.results, strict=True):
        if action == ["preempted"] or action[-1] is False:
            assert result > 0, action
    reasons = {name: output.reason for name, output in answer.outputs.items()}
    assert reasons.pop("e") == "abort"
    assert set(reasons.values()) == {"length"}
    assert answer.outputs["i"].tokens


def is_watched(process: Process, silent: frozenset[str]) -> None:
    """The sanitizer was on, judged all but these invariants, and found nothing."""
    assert process.complaints == [], process.log
    assert {name for name in ALL if not process.judged.get(name)} <= silent, process.log


def changes_nothing(
    kind: Kind, options: dict[str, Any], modes: Sequence[str], folder: Path
) -> None:
    """The engines of a kind answer alike without the sanitizer and with each of its modes."""
    models = folder / "models"
    models.mkdir(exist_ok=True)
    plain, process = served(kind, options, None, models, folder / "plain")
    assert "kvproof" not in process.log
    for answer in plain:
        is_served(kind.work, answer)
    for mode in modes:
        watched, process = served(kind, options, mode, models, folder / mode)
        assert [each.error for each in watched] == [None for _ in plain], process.log
        assert [each.outputs for each in watched] == [each.outputs for each in plain]
        assert [each.results for each in watched] == [each.results for each in plain]
        is_watched(process, kind.silent)
