"""What the plans of findings explain: the same break on the same vLLM whose cause was at work, and
nothing else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from kvproof.campaign import planned
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Course
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Engine, Planned, Play
from kvproof.gate.side import known_plans
from kvproof.gate.side.known_plans import (
    KnownPlan,
    Likeness,
    is_at_work,
    likeness,
    plans,
    signs,
)
from kvproof.gate.side.plans import driven as plans_driven
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.known.ingredients import INGREDIENTS, without
from kvproof.model.because import reason
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.finding import Finding, Signature
from kvproof.model.plans.connector import AbortRequest, ConnectorPlan, Fail, Forget, SubmitRequest
from kvproof.model.plans.engine import EnginePlan, given
from kvproof.model.plans.messages import Pause, Resume, Send
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.lines import NamedConnector
from kvproof.model.traces.trace import PlanRun, write_in
from kvproof.model.traces.trace_reader import read_run
from tests import mistakes_of_engines
from tests.cover import others_nightly
from tests.in_vllm import instead, nothing

KEPT = list(plans())
PLANS = (ConnectorPlan, EnginePlan)


def acting(*actions: Any) -> Play:
    """A plan with these actions."""
    plan = ConnectorPlan(CLUSTERS["full"].engines[0], (SubmitRequest(0, 1), *actions))
    return Play("", "example", plan)


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
        after=after,
        statement=statement,
        plan=plan,
    )


def shown(*breaks: Break) -> Result:
    """A run that comes to its end, and in which all checks had something to judge."""
    judged = {each.signature.check for each in breaks} | {DIES, "every_request_ends"}
    course = Course(ended=True, judged=tuple(judged))
    return Result("", breaks=breaks, course=course)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a break looks like where the plan of a finding, with this connector, breaks `again`."""

    def of(found: Break, *again: Break, plan: Planned = PLAN, of_own: Sequence[Break] = ()) -> str:
        kept = {FILES: [KnownPlan(DIES, plan, WHERE)]}
        monkeypatch.setattr(known_plans, "_all", lambda: kept)

        def driven(run: Planned, own: bool = False) -> Result:
            assert run == plan
            return shown(*(of_own if own else again))

        return likeness(found, driven).name

    return of


def test_each_line_of_the_page_has_plans_and_each_plan_a_line() -> None:
    page = (known_plans.EXPLAINED.with_suffix(".md")).read_text(encoding="utf-8")
    lines = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert lines == {path.stem for path in known_plans.EXPLAINED.iterdir()}
    assert lines <= {name for name, _ in KEPT}


def test_each_plan_names_its_connector_as_the_table_does() -> None:
    """Under another name it would be driven with whatever connector is judged."""
    for folder in (known_plans.FOLDER, known_plans.EXPLAINED):
        for path in folder.glob(f"*/{known_plans.PLANS}"):
            planned = read_run(path)
            assert isinstance(planned, PlanRun)
            if planned.connector is not None:
                assert planned.connector == NamedConnector(planned.connector.name), path
                assert planned.connector.name in SHIPPED, path


def raised(message: str) -> Break:
    """An exception that the engine outlives: it is known by its message."""
    made = broken("reset_is_carried_out", death="")
    words = reason("message", "{message}", message=message)
    return replace(made, finding=Finding("reset_is_carried_out", (words,)))


def wrong_tokens(feature: str = "window of full+window") -> Break:
    return broken("promised_tokens_are_loaded", feature, death="", statement="")


DIED, OTHERWISE = broken(), broken(death="KeyError in load")
WAITS, LATER = (broken("every_request_ends", death="", after=by) for by in ((), (DIED.key,)))

KNOWN = {
    "the same": (DIED, DIED),
    "after another action, beside other groups": (
        *(broken(event="Drain", feature="window of window"), DIED),
    ),
    "an exception with its message": (raised("no jobs"), raised("no jobs"), DIED),
    "wrong tokens of its group": (wrong_tokens(), DIED, wrong_tokens()),
    "one action breaks both": (OTHERWISE, OTHERWISE, DIED),
}
NEW = {
    "where the finding is mended": (DIED,),
    "another rule": (broken("every_request_ends", death="", statement=""), DIED),
    "another death": (broken(death="KeyError in save"), DIED),
    "another statement": (broken(statement="assert block"), DIED),
    "another reason": (broken(says="waits"), DIED),
    "an exception with another message": (raised("no jobs"), raised("no blocks"), DIED),
    "wrong tokens of another group": (wrong_tokens("full of full+window"), DIED, wrong_tokens()),
    "wrong tokens of all groups": (wrong_tokens("full+window"), DIED, wrong_tokens()),
    "in place of the finding": (OTHERWISE, OTHERWISE),
    "a consequence of the finding": (WAITS, DIED, LATER),
}
"""A break, and what the plan of the finding breaks again."""


@pytest.mark.parametrize("case", [*KNOWN, *NEW])
def test_the_same_break_is_known_and_what_breaks_in_another_way_is_new(
    case: str, known: Callable[..., str]
) -> None:
    found, *again = (KNOWN | NEW)[case]
    assert known(found, *again) == (FILES if case in KNOWN else "")


def test_an_engine_core_explains_no_connector(known: Callable[..., str]) -> None:
    engine = Engine("", EnginePlan((), 16, 8))
    assert not known(DIED, DIED, plan=engine)
    assert known(broken(plan=engine), broken(plan=engine), plan=engine) == FILES


def test_an_exception_is_known_by_the_connector_of_the_plan_too(known: Callable[..., str]) -> None:
    """Another connector may not come so far in the plan. What raises nothing says less."""
    raises = broken(says="message")
    assert known(raises, of_own=[raises]) == FILES
    assert not known(raises, of_own=[broken(says="message", statement="assert store")])
    assert not known(WAITS, of_own=[WAITS, raises])


def test_the_finding_whose_rule_is_broken_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of another one may break this rule too."""
    waits = broken("every_request_ends", death="")
    kept = {"other": [KnownPlan("every_request_ends", PLAN)], FILES: [KnownPlan(DIES, PLAN, WHERE)]}
    monkeypatch.setattr(known_plans, "_all", lambda: kept)
    both = partial(lambda _run, own: shown(*((waits, broken()) if not own else ())), own=False)
    assert likeness(broken(), both).name == FILES
    assert likeness(waits, both).name == "other"


def pauses(plan: EnginePlan) -> EnginePlan:
    """A loop without its pauses: an ingredient that no finding of vLLM needs so far."""
    left = tuple(each for each in plan.actions if not isinstance(each, Pause | Resume))
    return msgspec.structs.replace(plan, actions=left)


PAUSED = given((Send(0, "r0", 0, 4, 1), Pause(0, "keep"), Send(1, "r1", 0, 4, 1), Resume(3)))
RUNS: list[tuple[str, Planned]] = [
    ("aborts", next(each.run for _, each in KEPT if each.needs == ("aborts",))),
    ("sink_layers", next(each.run for _, each in KEPT if each.needs == ("sink_layers",))),
    ("pauses", Engine("", PAUSED)),
]
"""An ingredient of each kind of run, and a run with it."""


@pytest.mark.parametrize(("name", "run"), RUNS, ids=[name for name, _ in RUNS])
def test_the_cause_is_at_work_where_its_ingredient_is_needed_for_the_break(
    name: str, run: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(INGREDIENTS[EnginePlan], "pauses", pauses)
    monkeypatch.setattr(known_plans, "_all", dict)
    plan = without(name, run.plan)
    assert plan is not None
    assert without(name, plan) is None
    cured = msgspec.structs.replace(run, plan=plan)

    def is_told(again: Result | None, after: Result | None, *needs: str, of: Planned = run) -> bool:
        given = {msgspec.json.encode(run): again, msgspec.json.encode(cured): after}
        shows = partial(_shows, given)
        return is_at_work(KnownPlan(DIES, run, WHERE, needs), broken(plan=of), shows)

    breaks, other = shown(broken()), shown(broken(death="KeyError in load"))
    assert is_told(breaks, shown(), name)
    assert is_told(breaks, other, name)
    assert not is_told(breaks, breaks, name), "another defect breaks the same"
    assert not is_told(breaks, None, name), "such a run cannot be driven"
    assert not is_told(breaks, shown()), "no ingredient is named"
    assert not is_told(breaks, shown(), name, of=cured), "the run has none of it"
    assert not is_told(shown(), shown(), name), "the break needs what earlier runs left"
    early = msgspec.structs.replace(shown(), course=Course(ended=False, judged=(DIES,)))
    assert not is_told(breaks, early, name), "something else ends the run"
    unjudged = msgspec.structs.replace(shown(), course=Course(ended=True))
    assert not is_told(breaks, unjudged, name), "the check has nothing to judge"
    assert not is_told(breaks, shown(), name, "drafts"), "the cause needs more than there is"


WAITS_TOO = broken("every_request_ends", death="", statement="")
ABORTED, FAILED, FORGOTTEN = acting(AbortRequest()), acting(Fail()), acting(Forget())
OF_TWO = acting(AbortRequest(), Fail())
OF_THREE = acting(AbortRequest(), Fail(), Forget())


@pytest.mark.parametrize("other", [DIED, WAITS_TOO], ids=["of the same", "that ends the run early"])
def test_each_of_several_causes_in_a_run_is_looked_for(
    other: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What breaks without an ingredient of one finding has to be of another finding, or of another
    plan of it."""
    causes = {AbortRequest: DIED, Fail: other, Forget: OTHERWISE}
    kept = {
        FILES: [KnownPlan(DIES, ABORTED, WHERE, ("aborts",))],
        "other": [KnownPlan(other.signature.check, FAILED, other.death, ("failures",))],
    }
    monkeypatch.setattr(known_plans, "_all", lambda: kept)

    def driven(run: Planned, own: bool = False) -> Result:
        assert not own
        breaks = [replace(by, plan=run) for kind, by in causes.items() if _has(run, kind)][:1]
        course = Course(ended=not breaks, judged=(DIES, "every_request_ends"))
        return msgspec.structs.replace(shown(*breaks), course=course)

    assert likeness(replace(DIED, plan=OF_TWO), driven) == Likeness(FILES, at_work=True)
    assert likeness(replace(DIED, plan=OF_THREE), driven) == Likeness(FILES), "the third is new"
    causes[Forget] = other
    assert likeness(replace(DIED, plan=OF_THREE), driven) == Likeness(FILES), "the third is new"


def test_what_comes_only_with_the_cause_of_another_finding_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a request that is aborted this run ends earlier, by another finding. But what it dies
    of comes with the failure alone, and not with what the first finding needs. This is so, too,
    where the first finding needs both: no run shows that what it dies of needs more than one."""
    kept = {
        FILES: [KnownPlan(DIES, ABORTED, WHERE, ("aborts",))],
        "other": [KnownPlan(WAITS_TOO.signature.check, FAILED, "", ("failures",))],
    }
    monkeypatch.setattr(known_plans, "_all", lambda: kept)

    def driven(run: Planned, own: bool = False) -> Result:  # noqa: ARG001
        dies = _has(run, AbortRequest) and (_has(run, Fail) or run is ABORTED)
        by = [DIED] if dies else [WAITS_TOO] * _has(run, Fail)
        course = Course(ended=not by, judged=(DIES, "every_request_ends"))
        return msgspec.structs.replace(
            shown(*(replace(each, plan=run) for each in by)), course=course
        )

    assert likeness(replace(DIED, plan=OF_TWO), driven) == Likeness(FILES)
    kept[FILES] = [KnownPlan(DIES, OF_TWO, WHERE, ("aborts", "failures"))]
    assert likeness(replace(DIED, plan=OF_TWO), driven) == Likeness(FILES)


def _has(run: Planned, kind: type) -> bool:
    return any(isinstance(action, kind) for action in run.plan.actions)


def _shows(given: Mapping[bytes, Result | None], run: Planned, own: bool = False) -> Result | None:
    assert not own
    return given[msgspec.json.encode(run)]


def test_each_ingredient_is_one_of_a_finding_and_each_finding_has_some() -> None:
    assert all(plan.needs or plan.instead for _, plan in KEPT)
    needed = {(type(each.run.plan), name) for _, each in KEPT for name in each.needs}
    assert needed == {(of, name) for of in PLANS for name in INGREDIENTS[of]}


@pytest.mark.live
@pytest.mark.parametrize("error", [AdapterDrift("hits end nowhere", ""), ValueError("too old")])
def test_a_plan_that_this_vllm_cannot_take_explains_nothing(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.gate.side import connector_plans

    def played(*_: object) -> None:
        raise error

    plan = next(plan for name, plan in KEPT if name == "tail_beyond_offload_limit")
    assert isinstance(plan.run, Play)
    monkeypatch.setattr(connector_plans, "PlayedPlan", played)
    assert connector_plans.shown(connector_plans.subject(plan.run), plan.run) is None


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "plan"), KEPT, ids=[f"{name}-{plan.check}" for name, plan in KEPT]
)
def test_the_plan_of_a_finding_shows_it(name: str, plan: KnownPlan) -> None:
    breaks = plans_driven(plan.run).breaks
    alike = [each for of, each in KEPT if (of, each.run) == (name, plan.run)]
    # Another release may die of the same plan elsewhere.
    assert any(signs(each, breaks) for each in alike), f"findings/{name} is not shown"


ALSO = {"failed_load_stays_noted": "unloaded_hit_counts_as_computed"}
"""A finding in whose plan another one is at work, too."""


def told(run: Planned, check: str, death: str = "") -> Likeness:
    """What the break of a run is told as."""
    [first, *_] = (
        each
        for each in plans_driven(run).breaks
        if (each.signature.check, each.death) == (check, death) and not each.after
    )
    return likeness(first, planned.drives(first))


@pytest.mark.live
@pytest.mark.parametrize("number", others_nightly(range(len(KEPT)), range(0, len(KEPT), 10)))
def test_the_cause_of_a_finding_is_at_work_in_its_plan(number: int) -> None:
    """Without one of the ingredients that it names, the check holds."""
    name, plan = KEPT[number]
    if not signs(plan, plans_driven(plan.run).breaks):
        pytest.skip("another plan of this finding shows it on this release")
    like = told(plan.run, plan.check, plan.death)
    assert like.at_work
    assert like.name in (name, ALSO.get(name))


def takes_no_option(self: Any, kv_cache_spec: Any) -> None:
    """A manager of full attention that takes no more arguments than the one for sinks."""


V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
WAITING = f"{V1}.offloading.worker:OffloadingConnectorWorker.handle_preemptions"
FULL = "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager.__init__"


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("zeroed_before_saved", nothing(WAITING)),
        ("sink_manager_dies_at_start", instead(FULL, takes_no_option)),
        (
            "engine_abort_ends_pooling_front",
            mistakes_of_engines.MISTAKES["the vector of a request is lost"].change,
        ),
        (
            "waits_in_a_pause",
            mistakes_of_engines.MISTAKES["a request that waits is no work"].change,
        ),
    ],
)
def test_another_mistake_that_breaks_the_same_is_new(
    name: str, plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a connector, of a start-up, and of a loop."""
    rule, run = "idle_engine_has_no_waiting_request", Engine("", PAUSED)
    made = "waits_in_a_pause", KnownPlan(rule, run, needs=("pauses",))
    plan = next(plan for of, plan in [*KEPT, made] if of == name)
    monkeypatch.setitem(INGREDIENTS[EnginePlan], "pauses", pauses)
    monkeypatch.setattr(known_plans, "_all", lambda: {name: [plan]})
    planned._shown.cache_clear()
    plant(monkeypatch)
    assert told(plan.run, plan.check, plan.death) == Likeness(name, at_work=False)
    planned._shown.cache_clear()


@pytest.mark.live
def test_a_search_of_a_connector_names_the_finding(run: Any, tmp_path: Any) -> None:
    name, plan = next(each for each in KEPT if each[0] == "example_loads_another_file")
    named = NamedConnector("ExampleConnector", {"shared_storage_path": "{tmp}"})
    path = write_in(tmp_path, "plan", PlanRun(plan.run.plan, named))
    code, out, _ = run("replay", str(path))
    assert code == 1
    assert f"Known: {plan.check} is {name} (findings/ has what it is)." in out


@pytest.mark.live
@pytest.mark.parametrize(("more", "code"), [((), 1), (("--fail-on", "leak"), 3)])
def test_the_plan_of_a_finding_shows_it_again_also_where_it_is_not_grave(
    more: tuple[str, ...], code: int, run: Any
) -> None:
    check = "events_have_tokens_of_their_hash"
    path = known_plans.FOLDER / "stored_event_has_other_tokens" / "plan-1.jsonl"
    exit_code, out, _ = run("replay", str(path), *more)
    assert exit_code == code
    assert out.startswith(f"VIOLATED {check}") is (code == 1)
    assert check in out
