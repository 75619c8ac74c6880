"""A finding of base is mended only where head takes its run past the place and to the end, and has
the same to judge there."""

from typing import Any

import pytest

from kvproof.gate.difference.judged import Break, followed
from kvproof.gate.difference.parting import parting
from kvproof.gate.difference.record import Course, Stands
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Follow, Plays, Workload
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.events import Complete, Event, Schedule, Submit
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.signature import Signature
from tests.fake_sides import CRASH, RUN, SOME, compared, first_only, shows
from tests.reasons import said
from tests.two_machines import FULL, broken, result, unkept

EVENTS: tuple[Event, ...] = (Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1"))
RUNS = Stands("E", "r1", "running", True)
WAITS = Stands("E", "r1", "waiting", False)
OTHER = Stands("E", "r0", "running", True)


def found(check: str = "writer_is_alone", **about: Any) -> Break:
    """A break at the last of EVENTS."""
    finding = Finding(check, said("this", "not this"), About(**about))
    return Break(Signature(check, "Submit", "full"), "", "", finding, FULL, EVENTS, 3, ())


def whole(*stands: Stands, **more: Any) -> Course:
    return Course(stands, **{"ended": True} | more)


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (whole(RUNS), ""),
        (whole(RUNS, OTHER), ""),  # the finding is about r1
        (
            Course(dead="ValueError in allocate_slots: no\nmore"),
            "head dies (ValueError in allocate_slots: no)",
        ),
        (whole(RUNS, skipped=2), "2 of its events are not possible on head"),
        (whole(RUNS, ended=False), "the run does not come to its end on head"),
        (
            whole(WAITS),
            "head goes another way, r1 on E is waiting without blocks and running with blocks on "
            "base",
        ),
        (
            whole(),
            "head goes another way, r1 on E is absent and running with blocks on base",
        ),
    ],
)
def test_it_is_said_how_head_leaves_the_run(head: Course, says: str) -> None:
    one = found(engine="E", request="r1")
    assert parting(one, whole(RUNS), head) == says
    assert parting(one, whole(RUNS), head, 1) == (f"from event 2 on, {says}" if says else "")


def test_a_run_that_does_not_end_on_base_is_mended_where_it_ends() -> None:
    check = "every_request_can_finish"
    assert parting(found(check), whole(RUNS, ended=False), whole(WAITS)) == ""
    assert parting(found(check), whole(RUNS), whole(RUNS, ended=False))


def test_a_machine_says_how_the_requests_stand_before_an_event() -> None:
    cluster: Cluster = CLUSTERS["full"]
    events = [Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1")]
    for place, status in ((0, []), (1, ["waiting"]), (2, ["running"])):
        course = followed(cluster, ModelMachine, events, place=place).course
        assert [each.status for each in course.stands] == status
        assert (course.ended, course.dead, course.skipped) == (True, "", 0)


def dies(workload: Workload) -> Result:
    """Head dies at the first event."""
    course = Course(dead="ValueError in f: planted")
    return Result(workload.name, reached=(SOME,), course=course)


def test_a_head_that_dies_early_mends_nothing() -> None:
    with compared(shows(CRASH), dies) as both:
        both.drive([RUN])
        [(kind, one)] = both.of_base()
    assert kind == "not comparable"
    assert one.parting == "head dies (ValueError in f: planted)"


def test_another_run_may_say_what_became_of_it() -> None:
    """Head dies in the first run, and takes that on another cluster to its end."""
    other = CLUSTERS["hybrid"]
    elsewhere = Break(
        **{name: getattr(CRASH, name) for name in Break.__dataclass_fields__} | {"cluster": other}
    )
    again = Follow("again", other, CRASH.events)

    def base(workload: Workload) -> Result:
        return result(workload.name, elsewhere if workload.cluster == other else CRASH)

    def head(workload: Workload) -> Result:
        return result(workload.name) if workload.cluster == other else dies(workload)

    with compared(base, head) as both:
        both.drive([RUN, again])
        [(kind, one)] = both.of_base()
    assert (kind, one.found.cluster) == ("mended", other)


def test_what_the_run_of_base_shows_on_head_is_still_there() -> None:
    """The search missed it on head."""
    late = broken("engine_survives", "Complete", length=6)

    def head(workload: Workload) -> Result:
        return result(workload.name, *([late] if "again" in workload.name else []))

    with compared(shows(CRASH), head) as both:
        both.drive([RUN])
        assert [(kind, one.found) for kind, one in both.of_base()] == [("still there", late)]


def test_the_same_check_in_two_runs_is_neither_mended_nor_still_there() -> None:
    """It may be two defects."""
    second = Follow("second", FULL, CRASH.events)

    def on(name: str) -> Any:
        return lambda w: result(w.name, *([CRASH] if name in w.name else []))

    with compared(on(RUN.name), on("second")) as both:
        both.drive([RUN, second])
        assert not both.still_there()
        [(kind, one)] = both.of_base()
    assert (kind, one.parting) == (
        "not comparable",
        "head takes this run without it, and breaks the same check in another",
    )


def test_what_base_does_not_show_again_is_not_told() -> None:
    with compared(first_only(CRASH), dies) as both:
        both.drive([RUN])
        assert not list(both.of_base())


RULE = "promised_tokens_are_loaded"


def taken(*stands: Stands, **more: Any) -> Course:
    """A plan of three actions that was taken to its end."""
    return Course(stands, **{"ended": True, "judged": (RULE,)} | more)


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (taken(RUNS), ""),
        (
            taken(RUNS, dead="ValueError in f: no\nmore", ended=False),
            "head dies (ValueError in f: no)",
        ),
        (taken(RUNS, ended=False), "the run does not come to its end on head"),
        (taken(RUNS, judged=()), "the check has nothing to judge on head"),
        (
            taken(WAITS),
            "head goes another way, r1 on E is waiting without blocks and running with blocks on "
            "base",
        ),
    ],
)
def test_where_head_leaves_a_plan_of_base(head: Course, says: str) -> None:
    assert parting(unkept(RULE), taken(RUNS), head) == says


def test_a_plan_that_head_keeps_is_mended_only_if_its_rule_judged_something() -> None:
    """The whole comparison: base breaks a check in a plan, and head takes it to its end."""
    broke = unkept(RULE)

    def base(workload: Workload) -> Result:
        course = taken(RUNS)
        return Result(workload.name, breaks=(broke,), course=course)

    for judged, kind in (((RULE,), "mended"), ((), "not comparable")):

        def head(workload: Workload, judged: tuple[str, ...] = judged) -> Result:
            return Result(workload.name, course=taken(RUNS, judged=judged))

        with compared(base, head) as both:
            both.drive([Plays("plans for example", "example", 0, 12)])
            both.confirm(["plans for example"])
            [(told, one)] = both.of_base()
        assert (told, one.found) == (kind, broke)
        assert not both.introduced


def test_what_names_no_request_is_about_all_of_its_engine() -> None:
    base, head = whole(RUNS, OTHER), whole(WAITS, OTHER)
    assert "goes another way" in parting(found(engine="E"), base, head)
    assert "goes another way" in parting(found(), base, head)
    assert parting(found(engine="D"), base, head) == ""


def test_a_known_finding_in_two_runs_is_still_there() -> None:
    known = broken("pool_adds_up", by="copied_before_filled")
    second = Follow("second", FULL, CRASH.events)

    def on(name: str) -> Any:
        return lambda w: result(w.name, *([known] if w.name == name else []))

    with compared(on(RUN.name), on("second")) as both:
        both.drive([RUN, second])
        assert [each for _, each in both.still_there()] == [known]
        assert not list(both.of_base())
