"""The heat map over releases, from made-up surveys: what is bad, what is good, what is unknown."""

from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.faults.registry import FAULTS
from kvproof.reports import heat_table
from kvproof.reports.heat_map import Release, fault_rows, invariant_rows, output_rows, story_rows
from kvproof.reports.stories import STORIES
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import broken_by


def record(fault: str, invariant: str, **more: Any) -> dict[str, Any]:
    """A record of a trace followed to its end, which shows nothing."""
    quiet: dict[str, Any] = {"runs": 1, "steps": 9, "died": 0, "death": "", "broken": []}
    where = {"kind": "followed", "name": f"{fault}/{invariant}", "cluster": FAULTS[fault].cluster}
    return where | {"fault": fault, "invariant": invariant, "shown": False} | quiet | more


def broken(invariant: str, *after: str) -> dict[str, Any]:
    """A run that broke an invariant."""
    about = {"reasons": ["it is so", "it is not"], "runs": 1, "events": 3, "trace": "t.jsonl"}
    return {"invariant": invariant, "after": list(after)} | about


def good(**more: Any) -> list[dict[str, Any]]:
    """The records of a release that shows nothing."""
    return [record(f.name, i, **more) for f in FAULTS.values() for i in broken_by(f)]


def verdict(release: Release, invariant: str) -> Verdict:
    return next(r for r in invariant_rows([release]) if r.name == invariant).cells[0].verdict


def test_a_release_that_shows_nothing_is_good() -> None:
    release = Release("0.1.0", tuple(good()))
    assert {r.cells[0].verdict for r in invariant_rows([release])} == {Verdict.SAMPLED}
    assert {r.cells[0].verdict for r in fault_rows([release], FAULTS)} == {Verdict.SAMPLED}
    assert heat_table.unknown([release]) == 0


def test_what_breaks_anywhere_is_bad() -> None:
    sampled = {"kind": "sampled", "name": "pd", "cluster": "pd", "runs": 9, "steps": 9, "died": 0}
    release = Release("0.1.0", (*good(), sampled | {"broken": [broken("pool_adds_up")]}))
    assert verdict(release, "pool_adds_up") is Verdict.VIOLATED
    assert verdict(release, "hash_map_is_sound") is Verdict.SAMPLED


@pytest.mark.parametrize(
    "release",
    [
        Release("0.1.0", reason="pip cannot install it"),
        Release("0.1.0"),
        Release("0.1.0", tuple(good(died=1, death="AssertionError in schedule"))),
        Release("0.1.0", ({"kind": "followed", "cluster": "pd", "reason": "no", "name": "x"},)),
    ],
)
def test_what_was_not_driven_to_its_end_is_never_green(release: Release) -> None:
    rows = [*invariant_rows([release]), *story_rows([release]), *fault_rows([release], FAULTS)]
    assert {row.cells[0].verdict for row in rows} == {Verdict.UNKNOWN}
    assert all(row.cells[0].why for row in rows)
    text = "\n".join(heat_table.lines([release]))
    assert "| ok" not in text
    assert "| BAD" not in text


def test_one_run_that_was_not_taken_makes_its_invariant_unknown() -> None:
    lost = record("end_trim_across_ratios", "request_reads_its_own_prefix") | {"reason": "no"}
    others = [
        r for r in good() if (r["fault"], r["invariant"]) != (lost["fault"], lost["invariant"])
    ]
    release = Release("0.1.0", (lost, *others))
    assert verdict(release, "request_reads_its_own_prefix") is Verdict.UNKNOWN
    assert verdict(release, "pool_adds_up") is Verdict.SAMPLED


def test_another_engines_death_does_not_hide_what_it_cut_short() -> None:
    died = good(died=1, death="gone", broken=[broken("engine_survives")])
    release = Release("0.1.0", tuple(died))
    assert verdict(release, "engine_survives") is Verdict.VIOLATED
    assert verdict(release, "paired_lists_are_equal") is Verdict.UNKNOWN


def test_a_death_elsewhere_shows_another_defect() -> None:
    name, place = "align_split_refuses_external", FAULTS["align_split_refuses_external"].dies_in[0]
    for where, expected in ((place, Verdict.VIOLATED), ("schedule", Verdict.UNKNOWN)):
        death = broken("engine_survives") | {"reasons": ["so", f"D died: Error in {where}: no"]}
        release = Release(
            "0.1.0", (record(name, "engine_survives", died=1, death="d", broken=[death]),)
        )
        assert fault_rows([release], [name])[0].cells[0].verdict is expected


def test_a_story_shows_by_its_symptoms_too() -> None:
    symptom = broken("state_read_is_state_at_computed")
    told = record("decode_loads_whole_prompt", "prefill_and_decode_agree", broken=[symptom])
    others = [r for r in good() if r["fault"] != told["fault"]]
    release = Release("0.1.0", (told, *others))
    story = next(r for r in story_rows([release]) if r.name == "vllm#37310")
    assert story.cells[0].verdict is Verdict.VIOLATED


def test_first_bad_and_first_good() -> None:
    story, names = "vllm#43628", STORIES["vllm#43628"].faults
    invariant = FAULTS[names[0]].breaks[0]
    bad = [
        r | {"shown": True, "broken": [broken(invariant)]} if r["fault"] == names[0] else r
        for r in good()
    ]
    releases = [Release("0.1.0", tuple(good())), Release("0.2.0", tuple(bad))]
    releases += [Release("0.3.0", reason="no"), Release("0.4.0", tuple(good()))]
    row = next(r for r in story_rows(releases) if r.name == story)
    versions = [r.version for r in releases]
    (told,) = output_rows([row], versions)
    assert (told.first_bad, told.first_good) == ("0.2.0", "0.4.0")
    assert [cell.verdict for cell in told.releases.values()] == [c.verdict.value for c in row.cells]
    assert row.history(versions) == "bad from 0.2.0, good from 0.4.0"
    assert row._replace(cells=row.cells[1:]).history(versions[1:]).startswith("bad from 0.2.0 or ")
    assert "not good since" in row._replace(cells=row.cells[:3]).history(versions[:3])


def test_the_picture_shows_unknown_in_its_own_colour() -> None:
    picture = pytest.importorskip("kvproof.reports.heat_picture")
    assert len(set(picture.COLOURS.values())) == len(picture.COLOURS)
    unknown = picture.picture([Release("0.1.0", reason="no")], ".svg").decode()
    assert picture.COLOURS[Verdict.SAMPLED] not in unknown
    assert picture.picture([Release("0.1.0", tuple(good()))], ".png").startswith(b"\x89PNG")


def test_stories_and_deaths_name_what_there_is() -> None:
    assert all(name in FAULTS for story in STORIES.values() for name in story.faults)
    assert all(name in INVARIANTS for story in STORIES.values() for name in story.symptoms)
    assert all("engine_survives" in f.breaks for f in FAULTS.values() if f.dies_in)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--releases", "newest"], "A release has three numbers, unlike 'newest'"),
        (["--picture", "heat.pdf"], "format of a picture"),
        (["--trace", "missing.jsonl"], "cannot be read"),
    ],
)
def test_bad_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["releases", *arguments]) == 2
    assert said in capsys.readouterr().err
