"""The heat map over releases, from made-up surveys: what is bad, what is good, what is unknown."""

from typing import Any

import pytest

from benchmarks.releases import table as heat_table
from benchmarks.releases.rows import (
    HeatCell,
    SurveyedRelease,
    as_data,
    fault_rows,
    invariant_rows,
    story_rows,
)
from benchmarks.releases.stories import STORIES
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.faults.registry import FAULTS
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import broken_by


def record(fault: str, invariant: str, **more: Any) -> dict[str, Any]:
    """A record of a trace followed to its end, which shows nothing."""
    quiet: dict[str, Any] = {"runs": 1, "steps": 9, "died": 0, "death": "", "broken": []}
    quiet |= {"skipped": 0, "events": 9, "departed": ""}
    where = {"kind": "followed", "name": f"{fault}/{invariant}", "cluster": FAULTS[fault].cluster}
    return where | {"fault": fault, "invariant": invariant, "shown": False} | quiet | more


def broken(invariant: str, *after: str, **more: Any) -> dict[str, Any]:
    """A run that broke an invariant, as the trace was made to show; `after` are earlier breaks
    without a known reason."""
    about = {"reasons": ["it is so", "it is not"], "runs": 1, "events": 3, "trace": "t.jsonl"}
    shape = {"event": "Schedule", "feature": "", "death": "", "stray": False}
    earlier = [{"invariant": name, "by": ""} for name in after]
    return {"invariant": invariant, "by": "", "own": True, "after": earlier} | about | shape | more


def sampled(*found: dict[str, Any]) -> dict[str, Any]:
    """A record of random episodes."""
    ran = {"runs": 9, "steps": 9, "died": 0, "death": "", "skipped": 0, "broken": list(found)}
    return {"kind": "sampled", "name": "pd", "cluster": "pd", "without": []} | ran


def good(**more: Any) -> list[dict[str, Any]]:
    """The records of a release that shows nothing."""
    return [record(f.name, i, **more) for f in FAULTS.values() for i in broken_by(f)]


def verdict(release: SurveyedRelease, invariant: str) -> Verdict:
    return next(r for r in invariant_rows([release]) if r.name == invariant).cells[0].verdict


def test_a_release_that_shows_nothing_is_good() -> None:
    release = SurveyedRelease("0.1.0", tuple(good()))
    assert {r.cells[0].verdict for r in invariant_rows([release])} == {Verdict.SAMPLED}
    assert {r.cells[0].verdict for r in fault_rows([release], FAULTS)} == {Verdict.SAMPLED}
    assert heat_table.unknown([release]) == 0


def cell(release: SurveyedRelease, name: str) -> HeatCell:
    """The cell of an invariant or a fault."""
    rows = (*invariant_rows([release]), *fault_rows([release], FAULTS))
    return next(row for row in rows if row.name == name).cells[0]


def test_what_breaks_anywhere_is_bad() -> None:
    release = SurveyedRelease("0.1.0", (*good(), sampled(broken("pool_adds_up", own=False))))
    assert verdict(release, "pool_adds_up") is Verdict.VIOLATED
    assert verdict(release, "hash_map_is_sound") is Verdict.SAMPLED


def test_another_defect_on_the_run_of_a_fault_does_not_make_it_bad() -> None:
    name, invariant = "preemption_keeps_counter", "counter_counts_only_cached"
    others = [r for r in good() if r["fault"] != name]
    known = broken(invariant, by="null_blocks_counted_as_cached", own=False)
    release = SurveyedRelease("0.1.0", (*others, record(name, invariant, broken=[known])))
    assert cell(release, name).verdict is Verdict.SAMPLED
    assert verdict(release, invariant) is Verdict.VIOLATED
    odd = record(name, invariant, broken=[broken(invariant, own=False)])
    told = cell(SurveyedRelease("0.1.0", (*others, odd)), name)
    assert told.verdict is Verdict.UNKNOWN
    assert "in another way" in told.why


def test_a_run_that_took_another_course_shows_nothing() -> None:
    name, invariant = "copied_before_filled", "cached_block_holds_its_key"
    release = SurveyedRelease("0.1.0", (record(name, invariant, departed="r1 on E"),))
    assert cell(release, name).verdict is Verdict.UNKNOWN
    assert cell(release, name).why.endswith("takes another course with r1 on E")
    release = SurveyedRelease("0.1.0", (record(name, invariant, skipped=5),))
    assert cell(release, name).why.startswith("5 of 9 events")


def test_a_report_that_no_worker_makes_kills_no_engine_of_the_map() -> None:
    death = broken("engine_survives", death="AssertionError in f", stray=True, event="StrayReport")
    release = SurveyedRelease("0.1.0", (*good(), record("stray_report_dies", "x", broken=[death])))
    assert verdict(release, "engine_survives") is Verdict.SAMPLED
    assert cell(release, "stray_report_dies").verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    "release",
    [
        SurveyedRelease("0.1.0", reason="pip cannot install it"),
        SurveyedRelease("0.1.0"),
        SurveyedRelease("0.1.0", tuple(good(died=1, death="AssertionError in schedule"))),
        SurveyedRelease(
            "0.1.0", ({"kind": "followed", "cluster": "pd", "reason": "no", "name": "x"},)
        ),
    ],
)
def test_what_was_not_driven_to_its_end_is_never_green(release: SurveyedRelease) -> None:
    rows = [*invariant_rows([release]), *story_rows([release]), *fault_rows([release], FAULTS)]
    assert {row.cells[0].verdict for row in rows} == {Verdict.UNKNOWN}
    assert all(row.cells[0].why for row in rows)
    text = "\n".join(heat_table.lines([release]))
    assert "| ok" not in text
    assert "| BAD" not in text


def test_a_cluster_that_cannot_be_driven_says_nothing_of_the_others() -> None:
    lost = record("end_trim_across_ratios", "request_reads_its_own_prefix") | {"reason": "no"}
    others = [
        r for r in good() if (r["fault"], r["invariant"]) != (lost["fault"], lost["invariant"])
    ]
    told = cell(SurveyedRelease("0.1.0", (lost, *others)), "request_reads_its_own_prefix")
    assert told.verdict is Verdict.SAMPLED
    assert f"{lost['cluster']} cannot be driven" in told.why
    release = SurveyedRelease("0.1.0", (lost,))
    assert verdict(release, "request_reads_its_own_prefix") is Verdict.UNKNOWN


def test_another_engines_death_does_not_hide_what_it_cut_short() -> None:
    died = good(died=1, death="gone", broken=[broken("engine_survives")])
    release = SurveyedRelease("0.1.0", tuple(died))
    assert verdict(release, "engine_survives") is Verdict.VIOLATED
    assert verdict(release, "paired_lists_are_equal") is Verdict.UNKNOWN


def test_first_bad_and_first_good() -> None:
    story, names = "vllm#43628", STORIES["vllm#43628"].faults
    invariant = FAULTS[names[0]].breaks[0]
    bad = [
        r | {"shown": True, "broken": [broken(invariant)]} if r["fault"] == names[0] else r
        for r in good()
    ]
    releases = [SurveyedRelease("0.1.0", tuple(good())), SurveyedRelease("0.2.0", tuple(bad))]
    releases += [SurveyedRelease("0.3.0", reason="no"), SurveyedRelease("0.4.0", tuple(good()))]
    row = next(r for r in story_rows(releases) if r.name == story)
    versions = [r.version for r in releases]
    (told,) = as_data([row], versions)
    assert (told["first_bad"], told["first_good"]) == ("0.2.0", "0.4.0")
    verdicts = [cell["verdict"] for cell in told["releases"].values()]
    assert verdicts == [cell.verdict.value for cell in row.cells]
    assert row.history(versions) == "bad from 0.2.0, good from 0.4.0"
    assert row._replace(cells=row.cells[1:]).history(versions[1:]).startswith("bad from 0.2.0 or ")
    assert "not good since" in row._replace(cells=row.cells[:3]).history(versions[:3])


def test_stories_and_deaths_name_what_there_is() -> None:
    assert all(name in FAULTS for story in STORIES.values() for name in story.faults)
    assert all(name in INVARIANTS for story in STORIES.values() for name in story.symptoms)
    assert all("engine_survives" in f.breaks for f in FAULTS.values() if f.dies_in)
