"""Records of real vLLM: what they say is what happened, and machines follow them."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.events import Event, ResetPrefixCache, Schedule, bare
from kvproof.model.presets import CLUSTERS
from kvproof.model.records.as_trace import as_trace
from kvproof.model.records.record import read, write_in
from kvproof.model.records.tables import followed
from kvproof.reports.schemas import text
from tests.recorded import run as driven

pytestmark = pytest.mark.live

PRESETS = [
    *("full", "hybrid-evicting", "resetting", "hybrid-async-drafts", "priority-hybrid"),
    *("partial", "sparse-three", "long-prefill-hybrid", "window-drafts"),
]


def kept(events: Any) -> list[Event]:
    """The events without the blocks, and without those that change nothing."""
    left_out = ResetPrefixCache, Schedule
    return [bare(e) for e in events if not isinstance(e, left_out) or getattr(e, "chose", None)]


@pytest.mark.parametrize("name", PRESETS)
def test_a_record_is_the_run_that_was_driven(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2):
        run = driven(CLUSTERS[name], seed)
        path = write_in(tmp_path, "record", run.records["E"])
        record = read(path)
        assert record == run.records["E"]
        assert kept(as_trace(record).events) == kept(run.events)
        assert main(["replay", str(path)]) == 0, capsys.readouterr().out
        assert capsys.readouterr().out.startswith("SAMPLED: ")


def test_real_vllm_follows_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_in(tmp_path, "record", driven(CLUSTERS["full"]).records["E"])
    assert main(["replay", str(path), "--machine", "live"]) == 0, capsys.readouterr().out
    assert "on machine live are equal" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["hybrid-evicting", "pd-window", "store-failing-async", "turns"])
def test_a_record_has_its_schema_and_no_token(name: str, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(text("record.json")))
    run = driven(CLUSTERS[name])
    for engine, record in run.records.items():
        path = write_in(tmp_path, engine, record)
        whole = path.read_text(encoding="utf-8")
        for line in map(json.loads, whole.splitlines()):
            check.validate(line)
            assert not check.is_valid({**line, "comment": "mine"})
        for job in run.cluster.jobs:
            ids = ",".join(str(ord(token)) for token in job.prompt)
            assert len(job.prompt) < 3 or (job.prompt not in whole and ids not in whole)


@pytest.mark.parametrize("name", ["full", "hybrid-evicting", "pd", "pd-window-wide"])
def test_the_tables_of_a_record_end_as_the_engine_did(name: str) -> None:
    for record in driven(CLUSTERS[name], steps=25).records.values():
        *_, last = followed(record)
        assert last.tables == {each.request: each.tables for each in record.state.requests}


@pytest.mark.parametrize(
    ("mistake", "preset", "rule"),
    [
        ("hit_is_one_block_too_long", "full", "a hit of 4 tokens does not hold in every group"),
        (
            "state_is_taken_inside_a_block",
            "priority-hybrid",
            "r0 gets a chunk that the align split would cut",
        ),
    ],
)
def test_a_wrong_choice_is_reported_with_the_rule_that_it_breaks(
    mistake: str, preset: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = driven(CLUSTERS[preset], mistake=mistake).records["E"]
    assert record.findings
    path = write_in(tmp_path, "record", record)
    assert main(["replay", str(path)]) == 3
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"NOT FOLLOWED: {rule}"
    assert last.startswith("UNKNOWN: ")


def test_a_mistake_in_private_data_of_vllm_is_not_in_the_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = driven(CLUSTERS["full"], mistake="evicted_key_stays").records["E"]
    path = write_in(tmp_path, "record", record)
    for machine in ("model", "live"):
        assert main(["replay", str(path), "--machine", machine]) == 0
        first, *_, last = capsys.readouterr().out.splitlines()
        assert first.startswith("NOT SHOWN AGAIN: all 6 events were followed; hash_map_is_sound")
        assert last.startswith("SAMPLED: followed to the end")


def test_the_first_events_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvproof.watch import history

    monkeypatch.setattr(history, "KEPT", 7)
    record = driven(CLUSTERS["full"]).records["E"]
    assert len(record.events) == 7
    assert record.events[0].event.step == record.header.dropped + 1 > 1
    assert main(["replay", str(write_in(tmp_path, "record", record))]) == 3
    said = f"record: its first {record.header.dropped} events are not in the file\n"
    assert capsys.readouterr().out.endswith(said)


def test_an_engine_with_a_connector_is_not_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_in(tmp_path, "record", driven(CLUSTERS["pd-full"]).records["P"])
    assert main(["replay", str(path)]) == 3
    assert "its engine has a NixlPullConnector" in capsys.readouterr().out
