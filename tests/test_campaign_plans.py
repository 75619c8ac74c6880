"""Units of random plans in a campaign: what they find and show, and that they depend on the unit
alone."""

from pathlib import Path
from typing import Any

import pytest

from kvproof.campaign import planned
from kvproof.campaign.plan import PLANS_EVERY, Plan
from kvproof.campaign.planned import LOOPS, START_UPS
from kvproof.campaign.progress import Progress
from kvproof.campaign.unit import PlansUnit, packed, unit_of

OURS, WRONG = "ours", "tests.connectors.mistakes:PairsFromTheFront"
RULE = "promised_tokens_are_loaded"


def test_one_unit_in_some_has_plans_of_each_subject_in_turn() -> None:
    plan = Plan(0, live=True)
    empty = Progress(corpus_at=[0] * 9, findings_at=[0] * 9)
    others = PLANS_EVERY * len(plan.planned)
    units = [plan.unit(number, empty) for number in range(len(plan.presets) + others)]
    of_plans = [unit for unit in units if isinstance(unit, PlansUnit)]
    assert sorted(unit.plans.name for unit in of_plans) == sorted(plan.planned)
    assert {START_UPS, LOOPS, "offloading", "nixl-pull"} < {*plan.planned}
    assert "decode-bench" not in plan.planned  # wrong on purpose
    assert [unit_of(packed(unit)) for unit in of_plans] == of_plans


def test_the_model_has_no_plans() -> None:
    plan = Plan(0, live=False)
    units = [plan.unit(number, Progress()) for number in range(2 * PLANS_EVERY)]
    assert not any(isinstance(unit, PlansUnit) for unit in units)


@pytest.fixture
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that pairs blocks from the front on a partial hit is a connector of vLLM. What it
    breaks needs no earlier plan."""
    pytest.importorskip("vllm")
    from kvproof.connectors.shipped import SHIPPED, Shipped
    from kvproof.connectors.subject import TestedConnector

    subject = TestedConnector(WRONG)
    monkeypatch.setitem(SHIPPED, OURS, Shipped(subject, (OURS,)))
    monkeypatch.setattr(planned, "_breaks_alone", lambda _: True)


@pytest.mark.live
@pytest.mark.parametrize("name", ["offloading", START_UPS, LOOPS])
def test_a_unit_depends_on_itself_alone(name: str) -> None:
    from kvproof.campaign.planned import carry_out_plans

    plan = Plan(0, live=True)
    unit = PlansUnit(7, plan.plans(plan.planned.index(name), 11))
    result = carry_out_plans(unit)
    assert result.shown
    assert result.steps >= result.runs > 0
    assert not result.error
    assert packed(carry_out_plans(unit)) == packed(result)
    progress = Progress()
    progress.merge(unit, result)
    assert progress.plan_units == 1
    assert progress.different["plan"] == len(result.shown)
    assert not progress.fresh_units


@pytest.mark.live
@pytest.mark.usefixtures("_ours")
def test_a_finding_is_made_shorter_and_written(tmp_path: Path, run: Any) -> None:
    from kvproof.campaign.planned import carry_out_plans, written
    from kvproof.gate.difference.workload import Plays

    unit = PlansUnit(0, Plays(OURS, OURS, 3, 30))
    found = carry_out_plans(unit).found
    [first] = [each for each in found if each.signature.check == RULE]
    assert first.signature.feature.startswith(OURS)
    assert first.length <= 10
    path = written(first, tmp_path)
    code, out, _ = run("connector", WRONG, "--replay", str(path))
    assert code == 1
    assert RULE in out
    known = PlansUnit(0, unit.plans, tuple(each.signature for each in found))
    assert not carry_out_plans(known).found


@pytest.mark.live
@pytest.mark.usefixtures("_ours")
def test_a_finding_that_needs_earlier_plans_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.gate.difference.workload import Plays

    monkeypatch.setattr(planned, "_breaks_alone", lambda _: False)
    found = planned.carry_out_plans(PlansUnit(0, Plays(OURS, OURS, 3, 30))).found
    assert found
    assert all(planned.NEEDS_EARLIER in each.signature.words for each in found)


@pytest.mark.live
@pytest.mark.usefixtures("_ours")
def test_a_finding_whose_plan_is_kept_is_known_and_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvproof.campaign.planned import carry_out_plans
    from kvproof.gate.difference.workload import Play, Plays
    from kvproof.gate.search import known_plans
    from kvproof.gate.search.known_plans import KnownPlan

    unit = PlansUnit(0, Plays(OURS, OURS, 3, 30))
    before = carry_out_plans(unit)
    [first] = [each for each in before.found if each.signature.check == RULE]
    assert isinstance(first.entry, Play)
    kept = {"pairs_from_the_front": [KnownPlan(RULE, first.entry)]}
    monkeypatch.setattr(known_plans, "_all", lambda: kept)
    after = carry_out_plans(unit)
    assert after.met["pairs_from_the_front"]
    assert {each.signature for each in after.found} < {each.signature for each in before.found}
    assert first.signature not in {each.signature for each in after.found}
    kept["pairs_from_the_front"] = [KnownPlan("every_request_ends", first.entry)]
    assert carry_out_plans(unit).found == before.found


def test_the_plan_of_a_connector_has_a_command_of_its_own(refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "connector-engine_survives.json"
    path.write_text('{"engine": {"name": "E"}, "actions": []}')
    assert f"Use kvproof connector NAME --replay {path}" in refused("replay", str(path))
