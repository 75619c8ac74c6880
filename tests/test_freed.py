"""A break of head in whose run base breaks something else is looked for in a shorter run."""

from collections.abc import Callable, Sequence

import pytest

from kvproof.gate.difference.compare import Candidate
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Fixed, Play
from kvproof.gate.search.freed import RUNS_MAX, freed
from tests.test_known_plans import acting, broken

RUN = acting({"type": "Step"}, {"type": "Reset"}, {"type": "Step"}, {"type": "Drain"})
FOUND = broken("promised_tokens_are_loaded", death="", statement="", plan=RUN)
OTHER = broken("recomputed_prompt_is_not_loaded", death="", statement="", plan=RUN)

Of = Callable[[list[str]], tuple[Break, ...]]


def of_actions(play: Fixed) -> list[str]:
    assert isinstance(play, Play)
    return [action["type"] for action in play.plan["actions"]]


def found_in(base: Of, head: Of) -> tuple[Candidate | None, int]:
    """What is found where each side breaks this in a plan with these actions, and in how many
    runs."""
    tried: list[Fixed] = []

    def result(run: Fixed, of: Of) -> Result:
        breaks = of(of_actions(run))
        return Result(run.name, breaks=breaks, whole=not breaks)

    def drive(runs: Sequence[Fixed]) -> tuple[list[Result], list[Result]]:
        tried.extend(runs)
        return [result(run, base) for run in runs], [result(run, head) for run in runs]

    return freed(Candidate("plans", FOUND), RUN, drive), len(tried)


def when(*needed: str, shows: Break) -> Of:
    return lambda actions: (shows,) if {*needed} <= {*actions} else ()


def test_the_run_is_free_of_what_base_breaks() -> None:
    base, head = when("Reset", shows=OTHER), when("Step", shows=FOUND)
    free, _ = found_in(base, head)
    assert free == Candidate("plans", FOUND)


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (when("Step", shows=OTHER), when("Step", shows=FOUND)),
        (when("Step", shows=FOUND), when("Step", shows=FOUND)),
        (when("Reset", shows=OTHER), when("Reset", shows=FOUND)),
    ],
    ids=["needs the same", "base breaks it too", "only there"],
)
def test_nothing_is_found_where_base_breaks_something_whenever_head_does(
    base: Of, head: Of
) -> None:
    free, tried = found_in(base, head)
    assert free is None
    assert 0 < tried <= RUNS_MAX + 8
