"""Follow-up turns: what D keeps of a request it finished, and what P takes of it."""

import pytest
from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.errors import UsageError
from kvproof.model.events import (
    Complete,
    LeaseExpire,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
)
from kvproof.model.machine import ModelMachine
from kvproof.model.phases import Phase
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Transfer
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.run import Run
from kvproof.strategies.verdict import Verdict

REVERSE = "r0 reverse"
FULL = (Group("full", 2),)
HYBRID = (Group("full", 2), Group("mamba", 2))
WINDOWED = (Group("full", 2), Group("window", 2, window=3))


def cluster(groups: tuple[Group, ...], prompt: str, answer: int, follow_up: str) -> Cluster:
    jobs = (Job("r0", prompt, answer), Job("r1", follow_up, follows="r0"))
    p = EngineConfig("P", groups, 16, "prefill", 16)
    d = EngineConfig("D", groups, 16, "decode", 16)
    return Cluster(
        "turns", (p, d), jobs, follow_up_turns=True, failures=1, load_failure="recompute"
    )


def until(run: Run, *wanted: type) -> None:
    """Serve without disturbance until the next event can be one of these."""
    while not any(isinstance(e, wanted) for e in run.stimuli):
        run.take(next(e for e in run.stimuli if isinstance(e, (Schedule, TransferDone))))


def served_once(here: Cluster) -> Run:
    """The first turn is answered, and D keeps what it has of it."""
    run = Run(ModelMachine(here), ())
    for engine in ("P", "D"):
        until(run, Submit)
        run.take(Submit(engine, "r0"))
    until(run, Submit)
    return run


def reverse_transfer(run: Run) -> Transfer:
    found = run.machine.state.transfer(REVERSE)
    assert found is not None
    return found


def loaded(run: Run) -> tuple[int, int]:
    """The local hit of the next turn on P, and what it loads."""
    run.take(Submit("P", "r1"))
    run.take(Schedule("P"))
    (admission,) = run.steps[-1].effects.admissions or run.steps[-2].effects.admissions
    return admission.hit, admission.external


def test_a_turn_that_d_computes_itself_is_not_over_with_its_lease_on_p() -> None:
    run = Run(ModelMachine(cluster(FULL, "abc", 2, "abc..")), ())
    for event in (Submit("P", "r0"), Submit("D", "r0"), TransferFail("r0"), LeaseExpire("r0")):
        while event not in run.stimuli:
            run.take(next(e for e in run.stimuli if isinstance(e, (Schedule, Complete))))
        run.take(event)
    assert Submit("P", "r1") not in run.stimuli
    until(run, Submit)
    assert reverse_transfer(run).phase == Phase.OFFERED
    assert Submit("P", "r1") in run.stimuli


@pytest.mark.parametrize(
    ("groups", "follow_up", "spared"),
    [
        (FULL, "abc....de", 6),
        (FULL, "abc....", 6),
        (FULL, "abc...", 6),
        (FULL, "abc..", 5),
        (FULL, "abc", 3),
        (FULL, "a", 1),
        (HYBRID, "abc....de", 6),
        (HYBRID, "abc....d", 6),
        # P leaves the last token to D: the state is that of all its tokens, and is of no use.
        (HYBRID, "abc....", 2),
        (HYBRID, "abc", 0),
        (WINDOWED, "abc....", 6),
        (WINDOWED, "abc...", 2),
    ],
)
def test_p_loads_what_its_groups_can_use(
    groups: tuple[Group, ...], follow_up: str, spared: int
) -> None:
    assert sum(loaded(served_once(cluster(groups, "abc", 4, follow_up)))) == spared


@pytest.mark.parametrize("length", range(1, 11))
@pytest.mark.parametrize("groups", [FULL, HYBRID, WINDOWED], ids=["full", "hybrid", "window"])
def test_turns_of_any_length_keep_all_invariants(groups: tuple[Group, ...], length: int) -> None:
    prompt = "abc....defg"[:length]
    outcome = explore(cluster(groups, "abc", 4, prompt))
    assert outcome.verdict is Verdict.EXHAUSTED


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"follow_up_turns": False}, "has no follow-up turns"),
        ({"engines": CLUSTERS["pd-drafts"].engines}, "follow-up turns, drafts and Mamba"),
        ({"transfer": "push"}, "no reverse transfer"),
        ({"jobs": (Job("r0", "ab"), Job("r1", "xb", follows="r0"))}, "differs from that prompt"),
        ({"jobs": (Job("r0", "ab", embeds=True),)}, "embeds false"),
        (
            {"jobs": (Job("r1", "ab", follows="r0"), Job("r0", "ab"))},
            "no earlier job has this name",
        ),
        (
            {"jobs": (Job("r0", "a"), Job("r1", "a", follows="r0"), Job("r2", "a", follows="r0"))},
            "another job follows it",
        ),
    ],
)
def test_what_is_not_modelled_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        refuse_unmodelled(replace(CLUSTERS["turns"], **change))  # type: ignore[arg-type]
