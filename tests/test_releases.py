"""The heat map over releases, its surveys, and what lies in the cache folder."""

import dataclasses
import functools
import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from benchmarks.releases import __main__ as command
from benchmarks.releases import survey
from benchmarks.releases import surveys as release_surveys
from benchmarks.releases import table as heat_table
from benchmarks.releases.recognised import (
    made_by,
    on_the_model,
    repeats,
)
from benchmarks.releases.rows import (
    SurveyedRelease,
    as_data,
    fault_rows,
    invariant_rows,
    story_rows,
)
from benchmarks.releases.stories import STORIES
from benchmarks.releases.surveys import Surveys, whole
from kvproof.cli.on_releases import first_bad_and_good, in_order
from kvproof.gate.difference.judged import Break, followed
from kvproof.invariants.engines import WAITS
from kvproof.invariants.registry import INVARIANTS
from kvproof.live import availability
from kvproof.live import releases as cache_folder
from kvproof.live.known.registry import KNOWN
from kvproof.live.releases import Cache
from kvproof.model.errors import UsageError
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.state import Death
from kvproof.model.step import Step
from kvproof.model.traces.trace_reader import read
from kvproof.reports.output.search import ReleaseAnswer
from kvproof.strategies.verdict import Verdict
from kvproof.strategies.witnesses import Witness, broken_by, witnesses
from tests.planted import under
from tests.watching import live_machine


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


KEEPS, COUNTER = "preemption_keeps_counter", "counter_counts_only_cached"
COPIED, KEY = "copied_before_filled", "cached_block_holds_its_key"
STRAY, SURVIVES = "stray_report_dies", "engine_survives"
RATIOS, READS = "end_trim_across_ratios", "request_reads_its_own_prefix"


def but_for(fault: str, invariant: str = "") -> list[dict[str, Any]]:
    """The records of a release that shows nothing, without those of a fault."""
    return [r for r in good() if r["fault"] != fault or invariant not in ("", r["invariant"])]


BREAKS = sampled(broken("pool_adds_up", own=False))
EXPLAINED = record(KEEPS, COUNTER, broken=[broken(COUNTER, by="null_blocks_counted", own=False)])
ODD = record(KEEPS, COUNTER, broken=[broken(COUNTER, own=False)])
DIES = broken(SURVIVES, death="AssertionError in f", stray=True, event="StrayReport")
LOST = record(RATIOS, READS) | {"reason": "no"}
DIED = good(died=1, death="gone", broken=[broken(SURVIVES)])

CELLS = [
    # What breaks anywhere is bad, and nothing else is.
    ([*good(), BREAKS], "pool_adds_up", Verdict.VIOLATED, ""),
    ([*good(), BREAKS], "hash_map_is_sound", Verdict.SAMPLED, ""),
    # Another defect on the run of a fault does not make the fault bad.
    ([*but_for(KEEPS), EXPLAINED], KEEPS, Verdict.SAMPLED, ""),
    ([*but_for(KEEPS), EXPLAINED], COUNTER, Verdict.VIOLATED, ""),
    ([*but_for(KEEPS), ODD], KEEPS, Verdict.UNKNOWN, "in another way"),
    # A run that took another course shows nothing.
    (
        [record(COPIED, KEY, departed="r1 on E")],
        COPIED,
        Verdict.UNKNOWN,
        "takes another course with r1 on E",
    ),
    ([record(COPIED, KEY, skipped=5)], COPIED, Verdict.UNKNOWN, "5 of 9 events"),
    # A report that no worker makes kills no engine of the map.
    ([*good(), record(STRAY, "x", broken=[DIES])], SURVIVES, Verdict.SAMPLED, ""),
    ([*good(), record(STRAY, "x", broken=[DIES])], STRAY, Verdict.VIOLATED, ""),
    # A cluster that cannot be driven says nothing of the others.
    ([LOST, *but_for(RATIOS, READS)], READS, Verdict.SAMPLED, "cannot be driven"),
    ([LOST], READS, Verdict.UNKNOWN, ""),
    # The death of an engine does not hide what it cut short.
    (DIED, SURVIVES, Verdict.VIOLATED, ""),
    (DIED, "paired_lists_are_equal", Verdict.UNKNOWN, ""),
]


@pytest.mark.parametrize(("records", "name", "verdict", "why"), CELLS)
def test_the_cell_of_an_invariant_or_a_fault(
    records: list[dict[str, Any]], name: str, verdict: Verdict, why: str
) -> None:
    release = SurveyedRelease("0.1.0", tuple(records))
    rows = (*invariant_rows([release]), *fault_rows([release], FAULTS))
    cell = next(row for row in rows if row.name == name).cells[0]
    assert cell.verdict is verdict
    assert why in cell.why


def test_a_release_that_shows_nothing_is_good() -> None:
    release = SurveyedRelease("0.1.0", tuple(good()))
    assert {r.cells[0].verdict for r in invariant_rows([release])} == {Verdict.SAMPLED}
    assert {r.cells[0].verdict for r in fault_rows([release], FAULTS)} == {Verdict.SAMPLED}
    assert heat_table.unknown([release]) == 0


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


# A run of the script


def test_a_run_writes_when_a_fault_came_and_went(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first release shows it, the second nothing, and of the third nothing is known."""
    fault = "front_trim"
    shown = {"shown": True, "broken": [broken(FAULTS[fault].breaks[0])]}
    bad = [r | shown if r["fault"] == fault else r for r in good()]
    records = {"0.18.0": bad, "0.19.0": good()}

    def survey(_surveys: Surveys, version: str, *_: int) -> SurveyedRelease:
        reason = "" if version in records else "no"
        return SurveyedRelease(version, tuple(records.get(version, ())), reason)

    monkeypatch.setattr(Surveys, "survey", survey)
    argv = ["--cache", str(tmp_path), "--out", str(tmp_path)]
    assert command.main([*argv, "--releases", "0.20.2", "0.19.0", "0.18.0"]) == 3
    said = json.loads((tmp_path / "releases.json").read_text(encoding="utf-8"))
    row = next(row for row in said["faults"] if row["name"] == fault)
    verdicts = [cell["verdict"] for cell in row["releases"].values()]
    assert verdicts == ["VIOLATED", "SAMPLED", "UNKNOWN"]
    assert (row["first_bad"], row["first_good"]) == ("0.18.0", "0.19.0")
    text = (tmp_path / "releases.md").read_text(encoding="utf-8")
    line = next(each for each in text.splitlines() if each.startswith(f"| `{fault}`"))
    marks = [heat_table.MARKS[Verdict(each)] for each in verdicts]
    assert [cell.strip() for cell in line.split("|")[2:-2]] == marks
    assert "bad from" in line


# A break is told apart by the signs of its fault


@functools.cache
def witness(name: str) -> Witness:
    return next(witnesses([FAULTS[name]]))


def broken_with(fault: Fault, run: Witness) -> list[Break]:
    """What breaks on the model with a fault that takes the stimuli of a run."""
    with planted(fault):
        found = followed(run.cluster, ModelMachine, run.events, known=KNOWN.values())
    return list(found.breaks.values())


def recognised(name: str, other: str) -> list[bool]:
    """Whether what `other` breaks on the run of a fault is taken for this fault."""
    run = witness(name)
    signs = on_the_model(run.cluster, run.events, run.fault, KNOWN.values())
    return [made_by(run.fault, signs, each) for each in broken_with(FAULTS[other], run)]


def test_a_fault_is_recognised_by_its_own_signs() -> None:
    assert recognised("preemption_keeps_counter", "preemption_keeps_counter") == [True, True]
    assert recognised("front_trim", "front_trim") == [True]
    assert recognised("superseded_state_reserved", "superseded_state_reserved") == [True]


def test_another_fault_that_breaks_the_same_invariant_is_not_taken_for_it() -> None:
    invariant = "counter_counts_only_cached"
    name, other = "preemption_keeps_counter", "null_blocks_counted_as_cached"
    found = broken_with(FAULTS[other], witness(name))
    assert invariant in {each.signature.check for each in found}
    assert invariant in FAULTS[name].breaks
    assert not any(recognised(name, other))


def test_a_finding_of_a_trace_is_repeated_by_the_same_signature_alone() -> None:
    run = witness("preemption_keeps_counter")
    own, *_ = broken_with(run.fault, run)
    assert repeats(run.cluster, run.events[-1], run.finding, own)
    for wrong in broken_with(FAULTS["null_blocks_counted_as_cached"], run):
        if wrong.signature != own.signature:
            assert not repeats(run.cluster, run.events[-1], run.finding, wrong)


class Dying(ModelMachine):
    """The model, whose engines die as those of vLLM do."""

    death = Death("AssertionError", "_mamba_block_aligned_split", "no external tokens")

    def take(self, event: Event) -> Step:
        step = under([FAULTS[DEATH]], super().take, event)
        for engine in step.after.engines:
            if engine.dead is not None:
                self.state = self.state.with_engine(engine._replace(dead=self.death))
        return step._replace(after=self.state)


DEATH, HANG = "align_split_refuses_external", "align_split_during_load"


@pytest.mark.parametrize(
    ("otherwise", "made", "again"),
    [
        ({}, True, True),
        ({"message": "KeyError in schedule"}, True, True),
        ({"function": "allocate_slots"}, False, False),
        ({"exception": "KeyError"}, True, False),
        ({"statement": "assert tokens == 0"}, True, True),
    ],
)
def test_a_death_is_recognised_by_its_function_and_repeated_by_the_same_one(
    otherwise: dict[str, str], made: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = witness(DEATH)
    signs = on_the_model(run.cluster, run.events, FAULTS[DEATH])

    def dies() -> Break:
        broken = followed(run.cluster, Dying, run.events).breaks.values()
        return next(each for each in broken if each.signature.check == "engine_survives")

    recorded = dies()
    monkeypatch.setattr(Dying, "death", Dying.death._replace(**otherwise))
    found = dies()
    assert made_by(FAULTS[DEATH], signs, found) is made
    assert repeats(run.cluster, recorded.events[-1], recorded.finding, found) is again
    # Two statements of a function are two deaths.
    assert (found.key == recorded.key) is (again and "statement" not in otherwise)


def test_a_hang_is_recognised_by_the_status_of_what_waits() -> None:
    run = witness(HANG)
    signs = on_the_model(run.cluster, run.events, FAULTS[HANG])
    found = next(
        each
        for each in broken_with(FAULTS[HANG], run)
        if each.signature.check == "every_request_can_finish"
    )
    assert made_by(FAULTS[HANG], signs, found)
    reasons = tuple(
        structs.replace(each, facts=each.facts | {"status": "paused"})
        if each.kind == WAITS
        else each
        for each in found.finding.reasons
    )
    finding = dataclasses.replace(found.finding, reasons=reasons)
    assert not made_by(FAULTS[HANG], signs, dataclasses.replace(found, finding=finding))


# The cache folder


def survey_of(version: str, *records: dict[str, Any]) -> str:
    return json.dumps({"vllm": version, "records": records})


def test_a_half_written_survey_is_no_survey(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    assert whole(file, "0.1.0") is None
    file.write_text(survey_of("0.1.0", good()[0]))
    assert whole(file, "0.1.0") == [good()[0]]
    assert whole(file, "0.2.0") is None
    file.write_text(file.read_text()[:-5])
    assert whole(file, "0.1.0") is None


def test_what_two_processes_install_at_once_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        target = Path(command[command.index("--target") + 1])
        (target / "vllm").mkdir(parents=True)
        # The other process is faster.
        (tmp_path / "vllm" / "0.1.0" / "site-packages" / "other").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(cache_folder.children, "run", pip)
    place = Cache(tmp_path).installed("0.1.0")
    assert [path.name for path in place.iterdir()] == ["other"]
    assert [path.name for path in (tmp_path / "vllm").iterdir()] == ["0.1.0"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_survey_appears_with_its_traces_or_not_at_all(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(_env: Any, arguments: list[str]) -> None:
        survey = survey_of("0.18.0", *good())
        Path(arguments[0]).write_text(survey if ends else survey[:-1])
        traces = Path(arguments[arguments.index("--traces") + 1])
        traces.mkdir()
        (traces / "t.jsonl").write_text("a trace")

    monkeypatch.setattr(release_surveys, "_in_its_own_process", process)
    monkeypatch.setattr(Surveys, "witnesses", lambda _: tmp_path)
    monkeypatch.setattr(Cache, "installed", lambda *_: tmp_path)
    monkeypatch.setattr(Surveys, "_environment", lambda *_: {})
    release = Surveys(tmp_path).survey("0.18.0", 0, 1)
    there = sorted(path.name for path in (tmp_path / "surveys").rglob("*"))
    stem = f"0.18.0-{release_surveys.fingerprint()}-0-1"
    assert there == ([stem, f"{stem}.json", "t.jsonl"] if ends else [])
    assert release.reason == ("" if ends else "its survey is not whole")


@pytest.mark.nightly
def test_a_broken_folder_is_unknown_with_a_reason(tmp_path: Path) -> None:
    surveys = Surveys(tmp_path)
    for name in ("0.18.0", "needed"):
        (tmp_path / "vllm" / name / "site-packages").mkdir(parents=True)
    half = tmp_path / "vllm" / "0.18.0" / "site-packages" / "vllm.py"
    half.write_text("raise ImportError('half of a vLLM')")
    release = surveys.survey("0.18.0", 0, 1)
    assert release.records == ()
    assert release.reason


def test_what_all_releases_need_is_installed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def install(_self: Cache, folder: Path, _choices: Any) -> None:
        made.append(folder)
        time.sleep(0.05)
        cache_folder.packages(folder).mkdir(parents=True)

    monkeypatch.setattr(Cache, "_install", install)
    cache = Cache(tmp_path)
    with ThreadPoolExecutor(2) as two:
        folders = list(two.map(lambda _: cache.needed(), range(2)))
    assert len(made) == 1
    assert folders == [cache_folder.packages(made[0])] * 2


def test_what_pip_says_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "PACKAGES", ("kvproof-no-such-package",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    release = Surveys(tmp_path).survey("0.18.0", 0, 1)
    assert release.reason.startswith("pip cannot install it: ")
    assert not list((tmp_path / "vllm").iterdir())


# A trace on releases


ROOT = Path(__file__).parent.parent
FINDING = ROOT / "findings" / "superseded_state_reserved" / "trace.jsonl"


def in_cache(cache: Path, version: str) -> None:
    """Make the installed vLLM a release of a cache folder that needs no further packages."""
    import vllm

    site = Path(vllm.__file__).parent.parent
    folder = cache / "vllm" / version / "site-packages"
    folder.mkdir(parents=True)
    for path in site.glob("vllm*"):
        (folder / path.name).symlink_to(path)
    (cache / "vllm" / "needed" / "site-packages").mkdir(parents=True)


@pytest.mark.live
@pytest.mark.nightly
def test_a_release_shows_the_finding_of_a_trace(run: Any, tmp_path: Path) -> None:
    in_cache(tmp_path / "cache", availability.installed())
    argv = ["--releases", availability.installed(), "--cache", str(tmp_path / "cache")]
    code, out, _ = run("replay", str(FINDING), *argv)
    assert code == 0
    assert out.startswith(f"{availability.installed():8} BAD ")
    assert f"bad from {availability.installed()} or earlier, not good since" in out


def answers(*verdicts: str) -> dict[str, ReleaseAnswer]:
    """The answers of 0.1.0, 0.2.0, ..."""
    return {
        f"0.{number}.0": ReleaseAnswer(verdict=verdict, why="w")  # type: ignore[arg-type]
        for number, verdict in enumerate(verdicts, 1)
    }


def test_the_first_bad_release_and_the_first_good_one_after_the_last_bad() -> None:
    history = answers("SAMPLED", "VIOLATED", "SAMPLED", "VIOLATED", "UNKNOWN", "SAMPLED")
    assert first_bad_and_good(history) == ("0.2.0", "0.6.0")
    assert first_bad_and_good(answers("SAMPLED", "UNKNOWN")) == (None, None)
    assert first_bad_and_good(answers("VIOLATED", "UNKNOWN")) == ("0.1.0", None)


def test_releases_are_asked_from_the_oldest_on(refused: Any) -> None:
    assert in_order(["0.19.0", "0.9.1", "0.19.0"]) == ["0.9.1", "0.19.0"]
    with pytest.raises(UsageError, match="three numbers"):
        in_order(["newest"])
    assert "has no finding" in refused("replay", str(quiet()), "--releases")


def quiet() -> Path:
    """A trace without a finding, in this folder."""
    lines = FINDING.read_text(encoding="utf-8").splitlines()
    path = Path("quiet.jsonl")
    path.write_text("\n".join(x for x in lines if '"finding"' not in x) + "\n", encoding="utf-8")
    return path


@pytest.mark.live
def test_the_survey_of_the_installed_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SAMPLED", ("full-evicting",))
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "000-superseded_state_reserved.jsonl").write_bytes(FINDING.read_bytes())
    out = tmp_path / "out.json"
    options = ["--traces", str(tmp_path / "traces"), "--witnesses", str(runs)]
    assert survey.main([str(out), *options]) == 0
    records = whole(out, availability.installed())
    assert records is not None
    followed, sampled = records
    assert (followed["shown"], sampled["kind"]) == (True, "sampled")
    kept = read(tmp_path / "traces" / followed["broken"][0]["trace"])
    assert kept.finding is not None


@pytest.mark.live
def test_what_the_adapter_gets_wrong_is_no_engines_death(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.gate.difference.judged import sampled
    from kvproof.live.observer.recorder import Recorder
    from kvproof.model.presets import CLUSTERS

    monkeypatch.delattr(Recorder, "start")
    surveyor = survey.Surveyor("0.0.0", Path())
    cluster = CLUSTERS["full"]
    record = surveyor.record(
        cluster, "sampled", "full", lambda: sampled(cluster, live_machine, 0, 3, 10)
    )
    assert "no attribute 'start'" in record["reason"]
    assert "broken" not in record
