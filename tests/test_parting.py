"""A finding of base is mended only where head takes its run to the end, and the check has the same
to judge there."""

from dataclasses import replace
from typing import Any

import pytest

from kvproof.gate.difference.compare import parting
from kvproof.gate.difference.judged import Break, driven
from kvproof.gate.difference.record import Course, Stands
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Follow, Plays, Workload, follow
from kvproof.model.because import About
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from tests.fake_sides import CRASH, RUN, SOME, compared, first_only, shows
from tests.two_machines import FULL, broken, result, unkept

EVENTS = (Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1"))
RULE = "promised_tokens_are_loaded"
ALWAYS, AT_THE_END = "writer_is_alone", "every_request_can_finish"
RUNS, WAITS = Stands("E", "r1", "running", True), Stands("E", "r1", "waiting", False)
OTHER = Stands("E", "r0", "running", True)
UNSTARTED = broken("engine_survives", "Start", length=0)
DRAINED = replace(unkept(RULE), drained=True)
GOES = "head goes another way, r1 on E is {} and running with blocks on base"
BASE = Course(ended=True, stands=(RUNS,), left=(RUNS,))


def whole(*judged: str, **more: Any) -> Course:
    """A run that was taken to its end, in which these checks had something to judge. Where it shows
    a break on base, the requests stand as there."""
    return Course(**{"ended": True, "judged": judged, "stands": (RUNS,)} | more)


def of(**about: str) -> Break:
    """A break that is about these."""
    found = broken(ALWAYS)
    return replace(found, finding=replace(found.finding, about=About(**about)))


@pytest.mark.parametrize(
    ("found", "head", "says"),
    [
        (broken(ALWAYS), whole(ALWAYS), ""),
        (
            broken(ALWAYS),
            Course(dead="ValueError in allocate_slots: no\nmore"),
            "head dies (ValueError in allocate_slots: no)",
        ),
        (
            broken(ALWAYS),
            whole(ALWAYS, skipped=2),
            "2 of its events are not possible on head",
        ),
        (broken(ALWAYS), whole(ended=False), "the run does not come to its end on head"),
        (broken(ALWAYS), whole(), "the check has nothing to judge on head"),
        (broken(AT_THE_END), whole(), ""),
        (broken(AT_THE_END), whole(ended=False), "the run does not come to its end on head"),
        (unkept(RULE), whole(RULE), ""),
        (unkept(RULE), whole(RULE, ended=False), "the run does not come to its end on head"),
        (unkept(RULE), whole(), "the check has nothing to judge on head"),
        (of(request="r1"), whole(ALWAYS, stands=(OTHER, RUNS)), ""),
        (of(request="r1"), whole(ALWAYS, stands=(WAITS,)), GOES.format("waiting without blocks")),
        (of(engine="E"), whole(ALWAYS, stands=()), GOES.format("absent")),
        (of(engine="D"), whole(ALWAYS, stands=()), ""),
        (broken(ALWAYS), whole(ALWAYS, stands=()), GOES.format("absent")),
        (broken(AT_THE_END), whole(stands=()), ""),
        (unkept(RULE), whole(RULE, stands=(WAITS,)), GOES.format("waiting without blocks")),
        (DRAINED, whole(RULE, stands=(), left=(RUNS,)), ""),
        (DRAINED, whole(RULE, left=(WAITS,)), GOES.format("waiting without blocks")),
    ],
)
def test_it_is_said_how_head_leaves_the_run(found: Break, head: Course, says: str) -> None:
    assert parting(found, BASE, head) == says
    assert parting(found, BASE, head, 1) == (f"from event 2 on, {says}" if says else "")


def test_a_machine_says_which_checks_had_something_to_judge() -> None:
    """A check that was asked and found none of what it judges is not among them."""
    course = driven(follow(CLUSTERS["full"], "", EVENTS), ModelMachine).course
    assert (course.ended, course.dead, course.skipped) == (True, "", 0)
    assert "references_are_exact" in course.judged
    assert not {RULE, "entry_is_lost_with_its_block"} & {*course.judged}


def test_an_engine_that_head_can_start_is_mended() -> None:
    started = driven(follow(CLUSTERS["full"].carrying(), "", ()), ModelMachine).course
    assert parting(UNSTARTED, Course(dead="ValueError in f: no"), started) == ""


def test_a_machine_says_how_the_requests_stand_before_the_last_event() -> None:
    for length, status in ((1, []), (2, ["waiting"]), (3, ["running"])):
        stands = driven(follow(CLUSTERS["full"], "", EVENTS[:length]), ModelMachine).course.stands
        assert [each.status for each in stands] == status


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


def test_a_plan_that_head_keeps_is_mended_only_if_its_rule_judged_something() -> None:
    """The whole comparison: base breaks a check in a plan, and head takes it to its end."""
    broke = unkept(RULE)

    def base(workload: Workload) -> Result:
        return Result(workload.name, breaks=(broke,), course=whole(RULE))

    for judged, kind in (((RULE,), "mended"), ((), "not comparable")):

        def head(workload: Workload, judged: tuple[str, ...] = judged) -> Result:
            return Result(workload.name, course=whole(*judged))

        with compared(base, head, Plays("plans for example", "example", 0, 12)) as both:
            [(told, one)] = both.of_base()
        assert (told, one.found) == (kind, broke)
        assert not both.introduced


def test_a_known_finding_in_two_runs_is_still_there() -> None:
    known = broken("pool_adds_up", by="copied_before_filled")
    second = Follow("second", FULL, CRASH.events)

    def on(name: str) -> Any:
        return lambda w: result(w.name, *([known] if w.name == name else []))

    with compared(on(RUN.name), on("second")) as both:
        both.drive([RUN, second])
        assert [each for _, each in both.still_there()] == [known]
        assert not list(both.of_base())
