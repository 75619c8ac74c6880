"""What the plans of findings explain: the same break on the same vLLM, and nothing else."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.workload import Play, Start
from kvproof.gate.search import known_plans
from kvproof.gate.search.known_plans import KnownPlan, Planned, known_as, plans, signs
from kvproof.gate.search.known_plans import causes as causes_of
from kvproof.model.because import reason
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.finding import Finding
from kvproof.model.presets import CLUSTERS
from kvproof.model.signature import Signature

KEPT = list(plans())


def acting(*actions: dict[str, Any]) -> Play:
    """A plan with these actions."""
    return Play("", "example", {"actions": [{"type": "Submit"}, *actions]})


PLAN = acting()
DIES = "engine_survives"
WHERE, WHAT = "AssertionError in save", "assert file"
FILES = "ours_saves_nothing"


def broken(
    check: str = DIES,
    feature: str = "window of full+window",
    death: str = WHERE,
    statement: str = WHAT,
    *,
    says: str = "died",
    event: str = "RunSteps",
    plan: Planned = PLAN,
    after: tuple[Any, ...] = (),
) -> Break:
    """A break that has a plan."""
    return Break(
        signature=Signature(check, event, feature),
        by="",
        death=death,
        finding=Finding(check, (reason(says, says),)),
        cluster=Cluster("example", CLUSTERS["full"].engines),
        events=(),
        index_of_first=0,
        after=after,
        statement=statement,
        plan=plan,
    )


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What explains a break where the plan of a finding, with this connector, breaks `again`."""

    def of(found: Break, *again: Break, plan: Planned = PLAN, of_own: Sequence[Break] = ()) -> str:
        kept = {FILES: [KnownPlan(DIES, plan, WHERE)]}
        monkeypatch.setattr(known_plans, "_all", lambda: kept)

        def driven(run: Planned, own: bool = False) -> Iterable[Break]:
            assert run == plan
            return of_own if own else again

        return known_as(found, driven)

    return of


def test_each_line_of_the_page_has_plans_and_each_plan_a_line() -> None:
    page = (known_plans.EXPLAINED.with_suffix(".md")).read_text(encoding="utf-8")
    lines = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert lines == {path.stem for path in known_plans.EXPLAINED.glob("*.json")}
    assert lines <= {name for name, _ in KEPT}


def test_an_exception_that_the_engine_outlives_is_known_by_its_message(
    known: Callable[..., str],
) -> None:
    def raised(message: str) -> Break:
        made = broken("reset_is_carried_out", death="")
        words = reason("message", "{message}", message=message)
        return replace(made, finding=Finding("reset_is_carried_out", (words,)))

    one, other = raised("no jobs"), raised("no blocks")
    died = broken()
    assert known(one, one, died)
    assert not known(one, other, died)


def test_an_exception_is_known_by_the_connector_of_the_plan_too(known: Callable[..., str]) -> None:
    """Another connector may not come so far in the plan. What raises nothing says less."""
    raised = broken(says="message")
    assert known(raised, of_own=[raised]) == FILES
    assert not known(raised, of_own=[broken(says="message", statement="assert store")])
    waits = broken("every_request_ends", death="")
    assert not known(waits, of_own=[waits, raised])


def test_the_finding_whose_rule_is_broken_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of another one may break this rule too."""
    waits = broken("every_request_ends", death="")
    kept = {"other": [KnownPlan("every_request_ends", PLAN)], FILES: [KnownPlan(DIES, PLAN, WHERE)]}
    monkeypatch.setattr(known_plans, "_all", lambda: kept)
    both = partial(lambda _run, own: (waits, broken()) if not own else (), own=False)
    assert known_as(broken(), both) == FILES
    assert known_as(waits, both) == "other"


def test_the_same_break_is_known_after_another_action_and_beside_other_groups(
    known: Callable[..., str],
) -> None:
    assert known(broken(), broken()) == FILES
    assert known(broken(event="Drain", feature="window of window"), broken()) == FILES


RESET = {"type": known_plans.RESET, "running": False, "connector": True}


@pytest.mark.parametrize("action", [RESET, {"type": "Restart"}, {"type": "Fail", "times": 1}])
def test_what_only_an_action_brings_about_explains_no_plan_without_it(
    action: dict[str, Any], known: Callable[..., str]
) -> None:
    assert known(broken(), broken(), plan=acting(action)) == ""
    assert known(broken(plan=acting(action)), broken(), plan=acting(action)) == FILES
    own_cache = {**RESET, "connector": False}
    assert known(broken(), broken(), plan=acting(own_cache)) == FILES


@pytest.mark.parametrize(
    "other",
    [
        broken(check="every_request_ends", death="", statement=""),
        broken(death="KeyError in save"),
        broken(statement="assert block"),
        broken(says="waits"),
    ],
    ids=["rule", "death", "statement", "reason"],
)
def test_what_breaks_in_another_way_is_new(known: Callable[..., str], other: Break) -> None:
    assert not known(other, broken())


@pytest.mark.parametrize("feature", ["full of full+window", "full+window"])
def test_wrong_tokens_of_another_group_are_new(known: Callable[..., str], feature: str) -> None:
    window = partial(broken, check="promised_tokens_are_loaded", death="", statement="")
    assert not known(window(feature=feature), broken(), window())
    assert known(window(), broken(), window()) == FILES


def test_where_the_finding_is_mended_the_same_break_is_new(known: Callable[..., str]) -> None:
    assert not known(broken())


def test_what_the_plan_breaks_in_place_of_its_finding_is_new(known: Callable[..., str]) -> None:
    other = broken(death="KeyError in load")
    assert not known(other, other)
    assert known(other, other, broken()) == FILES  # one action breaks both


def test_a_consequence_of_the_finding_explains_nothing(known: Callable[..., str]) -> None:
    later = broken(check="every_request_ends", death="", after=(broken().key,))
    assert not known(broken(check="every_request_ends", death=""), broken(), later)


@pytest.mark.live
@pytest.mark.parametrize("error", [AdapterDrift("hits end nowhere", ""), ValueError("too old")])
def test_a_plan_that_this_vllm_cannot_take_explains_nothing(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm")
    from kvproof.gate.search import connector_plans

    def breaks(*_: object) -> None:
        raise error

    plan = next(plan for name, plan in KEPT if name == "tail_beyond_offload_limit")
    assert isinstance(plan.run, Play)
    monkeypatch.setattr(connector_plans, "breaks", breaks)
    assert connector_plans.again(plan.run, chosen=connector_plans.subject(plan.run)) == ()


def test_a_start_up_explains_no_connector(known: Callable[..., str]) -> None:
    start = Start("", {"layers": []})
    assert not known(broken(), broken(), plan=start)
    assert known(broken(plan=start), broken(plan=start), plan=start) == FILES


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "plan"), KEPT, ids=[f"{name}-{plan.check}" for name, plan in KEPT]
)
def test_the_plan_of_a_finding_shows_it(name: str, plan: KnownPlan) -> None:
    pytest.importorskip("vllm")
    from kvproof.campaign.planned import driven

    breaks = driven(plan.run).breaks
    alike = [each for of, each in KEPT if (of, each.run) == (name, plan.run)]
    # Another release may die of the same plan elsewhere.
    assert any(signs(each, breaks) for each in alike), f"findings/{name} is not shown"


@pytest.mark.live
@pytest.mark.parametrize(
    "plan", [each for _, each in KEPT if causes_of(each.run)], ids=lambda each: each.check
)
def test_without_its_causes_the_plan_of_a_finding_shows_nothing(plan: KnownPlan) -> None:
    """So a break that happened without one of them is not the finding."""
    pytest.importorskip("vllm")
    from kvproof.gate.search import connector_plans

    assert isinstance(plan.run, Play)
    actions = plan.run.plan["actions"]
    for cause in causes_of(plan.run):
        alone = [Play("", plan.run.connector, {"actions": [each]}) for each in actions]
        left = [a for a, one in zip(actions, alone, strict=True) if cause not in causes_of(one)]
        without = Play("", plan.run.connector, {**plan.run.plan, "actions": left})
        assert plan.check not in {b.signature.check for b in connector_plans.driven(without).breaks}


@pytest.mark.live
def test_a_search_of_a_connector_names_the_finding(run: Any, tmp_path: Any) -> None:
    pytest.importorskip("vllm")
    name, plan = next(each for each in KEPT if each[0] == "example_loads_another_file")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.run.plan))
    extra = json.dumps({"shared_storage_path": "{tmp}"})
    code, out, _ = run("connector", "ExampleConnector", "--extra", extra, "--replay", str(path))
    assert code == 1
    assert f"Known: {plan.check} is {name} (findings/ has what it is)." in out
