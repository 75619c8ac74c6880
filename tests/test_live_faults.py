"""Mistakes that are put into real vLLM: each is found by its check. Historical ones are kept as a
trace that shows them again."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.answer import trace_file, traced
from kvproof.cli.machines import maker
from kvproof.cli.main import main
from kvproof.cli.parser import Setup
from kvproof.invariants.registry import CHECKS
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.reports.terminal import replay_line
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome, Verdict
from tests.mistakes import MISTAKES, TOLD, preset_of
from tests.watching import is_undriven, watched

pytestmark = pytest.mark.live

SEEDS = 4
"""Searches after which a mistake must have been found."""

FIRST = {"preemption_skips_the_next": 5}
"""The seed of a search that finds a mistake which few searches find. It is taken first."""

DRAWN = (
    "worker_is_told_one_too_many",
    "new_blocks_are_noted_for_ever",
    "answers_are_not_cached",
    "events_of_hits_carry_another_block",
)
"""Mistakes that the jobs of their preset do not show, so that others are drawn."""


def found(name: str, checks: list[str] | None, make: Any) -> Outcome:
    """The outcome of the first search of live vLLM that finds something, or of the last one."""
    for seed in dict.fromkeys((FIRST.get(name, 0), *range(SEEDS))):
        outcome = run(name, checks, make, seed)
        if outcome.verdict is Verdict.VIOLATED:
            break
    return outcome


def run(name: str, checks: list[str] | None, make: Any, seed: int) -> Outcome:
    """Sample live vLLM over the traffic of the fault's preset."""
    return sample(
        CLUSTERS[preset_of(name)],
        make,
        None if checks is None else [CHECKS[i] for i in checks],
        seed=seed,
        examples=60 if name in TOLD else 90,
        use_jobs=name not in DRAWN,
        shrink=False,
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_the_invariant_finds_the_mistake_in_vllm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_undriven(CLUSTERS[preset_of(name)]):
        return
    finds = MISTAKES[name].finds
    dies = finds == "engine_survives"  # an assertion of vLLM itself comes before the check
    assert dies or name not in FAULTS or finds in FAULTS[name].breaks
    MISTAKES[name].patch(monkeypatch)
    outcome = found(name, [finds], watched)
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant == finds


def printed_command(said: str) -> list[str]:
    """The arguments of the command that is printed after a trace was written."""
    program, *arguments = shlex.split(said.removeprefix("Replay it: "))
    assert program == "kvproof"
    return arguments


def replayed(command: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the verdict of a replay, where each finding fails it."""
    capsys.readouterr()
    code = main([*command, "--fail-on", "bookkeeping", "--json"])
    return code, json.loads(capsys.readouterr().out)["verdict"]


@pytest.mark.parametrize("name", TOLD)
def test_the_trace_of_a_mistake_shows_it_again(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        TOLD[name].patch(patch)
        outcome = found(name, None, watched)
        assert outcome.finding is not None
        assert outcome.finding.invariant in CHECKS
        setup = Setup(CLUSTERS[preset_of(name)], (), None)
        trace = traced(setup, maker("live"), outcome, 0)
        assert trace is not None
        kept = trace_file(trace, tmp_path)
        kept.attempt()
        assert kept.path is not None
        command = printed_command(replay_line(trace, kept.path))
        assert replayed(command, capsys) == (1, "VIOLATED")
    assert replayed(command, capsys) in ((0, "SAMPLED"), (3, "UNKNOWN"))
    on_the_model = [*command[: command.index("live")], "model"]
    assert replayed(on_the_model, capsys)[0] in (0, 1, 3)
