"""Traces of an older schema are read, upgraded, and replay on both machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.model.errors import UsageError
from kvproof.model.events import bare
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.traces.trace import SCHEMA, write
from kvproof.model.traces.trace_reader import read
from kvproof.model.traces.trace_upgrade import upgraded
from kvproof.strategies.conformance.replay import replay
from tests.planted import mistaken
from tests.watching import known_faults

OLD = sorted((Path(__file__).parent / "testdata" / "old_traces").glob("*.jsonl"))


def schema(path: Path) -> int:
    header = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    return int(header["schema"])


def check(machine: Machine, path: Path) -> None:
    trace = read(path)
    replayed = replay(machine, trace)
    assert replayed.differs is None
    assert replayed.outcome.finding is not None
    assert trace.finding is not None
    assert replayed.outcome.finding.invariant == trace.finding.invariant


def test_there_are_traces_of_each_older_schema() -> None:
    assert {schema(path) for path in OLD} == set(range(1, SCHEMA))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_trace_replays_on_the_model(path: Path) -> None:
    if schema(path) == 1:
        assert all(event == bare(event) for event in read(path).events)
    cluster = read(path).cluster
    with mistaken(known_faults(cluster)):
        check(ModelMachine(cluster), path)


@pytest.mark.live
@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_trace_replays_on_live_vllm(path: Path) -> None:
    from kvproof.live.machine import LiveMachine

    check(LiveMachine(read(path).cluster), path)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_trace_is_written_as_a_new_one(path: Path, tmp_path: Path) -> None:
    trace = read(path)
    write(tmp_path / "new.jsonl", trace)
    assert schema(tmp_path / "new.jsonl") == SCHEMA
    assert read(tmp_path / "new.jsonl") == trace


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("KeyError in f: 'a in b: c'", ["KeyError", "f", "'a in b: c'"]),
        ("AssertionError in <lambda>", ["AssertionError", "<lambda>", ""]),
        ("no request waits for a report on r0", ["", "", "no request waits for a report on r0"]),
        ("", None),
        (["KeyError", "f", ""], ["KeyError", "f", ""]),
    ],
)
def test_the_death_of_an_engine_is_data(was: Any, now: Any) -> None:
    record = {"changed": {"/engines/P/dead": was, "/engines/P/requests/dead": was}}
    expected = {"changed": {"/engines/P/dead": now, "/engines/P/requests/dead": was}}
    assert upgraded(record, 3) == expected
    assert upgraded(expected, 4) == expected


def test_blocks_in_a_trace_of_schema_1_are_refused(tmp_path: Path) -> None:
    lines = OLD[0].read_text(encoding="utf-8").splitlines()
    records = list(map(json.loads, lines))
    number = next(i for i, r in enumerate(records) if r.get("event", {}).get("chose"))
    record = records[number]
    record["event"]["chose"][0]["taken"] = [[1], [2]]
    lines[number] = json.dumps(record)
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(
        UsageError, match=f"Line {number + 1} of .* has the field taken, which schema 1"
    ):
        read(path)
