"""Records as files: what `report` shows, what `replay` does not follow, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.model.finding import Finding
from kvproof.model.records.as_trace import NotFollowed, as_trace, prompts
from kvproof.model.records.lines import (
    Admitted,
    Arrived,
)
from kvproof.model.records.record import Happened, Record, read, read_either, write_in
from kvproof.reports.record import show
from tests.conftest import TESTDATA
from tests.printed import printed
from tests.reasons import said
from tests.sentences import two_sentences

FILE = TESTDATA / "record.jsonl"
"""Real vLLM 0.32.0 with a mistake: a hit does not count its references."""

Replace = msgspec.structs.replace


@pytest.fixture
def record() -> Record:
    return read(FILE)


def with_header(record: Record, **fields: Any) -> Record:
    return record._replace(header=Replace(record.header, **fields))


def with_first(record: Record, **fields: Any) -> Record:
    """The record whose first request is another one, without findings."""
    event = record.events[0].event
    arrived = Replace(event.arrived, **fields)
    first = Happened(Replace(event, arrived=arrived))
    return record._replace(events=(first, *(Happened(e) for e, _ in record.events[1:])))


def test_a_record_is_read_as_it_was_written(record: Record, tmp_path: Path) -> None:
    path = write_in(tmp_path / "new", "again", record)
    assert path.read_text() == FILE.read_text()
    assert read_either(path) == record
    assert {finding.invariant for finding in record.findings} == {
        "references_are_exact",
        "no_block_free_and_held",
        "predicted_is_taken",
        "pool_adds_up",
    }


def test_the_report_of_a_record(record: Record, golden: Callable[[str, str], None]) -> None:
    shown = printed(show, record, Path("record.jsonl"))
    assert max(map(len, shown.splitlines())) <= 80
    golden("record.txt", shown)


def test_a_finding_is_looked_for_where_the_record_has_it(run: Any, as_json: Any) -> None:
    code, output = as_json("replay", str(FILE))
    assert (code, output["verdict"], output["machine"]) == (0, "SAMPLED", "model")
    assert output["differs"]["field"] == "finding"
    code, out, _ = run("replay", str(FILE))
    first, *_, last = out.splitlines()
    assert (
        first == "NOT SHOWN AGAIN: all 5 events were followed; references_are_exact is not violated"
    )
    assert last.startswith(
        "SAMPLED: followed to the end on machine model, and references_are_exact"
    )


def test_a_step_that_died_has_no_choices_to_follow(
    record: Record, run: Any, tmp_path: Path
) -> None:
    died = Replace(record.events[1].event, tokens={}, admitted=(), tables=(), raised="KeyError: 1")
    finding = Finding("engine_survives", said("every engine must survive schedule", "E died"))
    events = (record.events[0], Happened(died, (finding,)))
    code, out, _ = run("replay", str(write_in(tmp_path, "died", record._replace(events=events))))
    assert code == 0
    assert out.startswith(
        "NOT SHOWN AGAIN: 1 events were followed, and the last one is another here; "
        "engine_survives is not violated\n"
    )
    assert "  here:     Schedule(E): Admit(r0, 0, 0), Compute(r0, 7)\n" in out


def test_a_record_that_the_model_does_not_follow_is_unknown(
    record: Record, run: Any, as_json: Any, tmp_path: Path
) -> None:
    other = with_first(record)
    schedule = Replace(other.events[1].event, admitted=(Admitted(request="r0", hit=4),))
    other = other._replace(events=(other.events[0], Happened(schedule), *other.events[2:]))
    path = str(write_in(tmp_path, "other", other))
    code, out, _ = run("replay", path)
    assert code == 3
    assert out.startswith("NOT FOLLOWED: a hit of 4 tokens does not hold in every group\n")
    code, output = as_json("replay", path)
    assert (code, output["verdict"]) == (3, "UNKNOWN")
    held = with_first(record)._replace(events=with_first(record).events[:2])
    code, out, _ = run("replay", str(write_in(tmp_path, "held", held)))
    assert code == 3
    assert "at step 2, the end: request r0 is" in out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: with_header(r, from_start=False), "does not begin at the start of its engine"),
        (lambda r: with_header(r, dropped=9), "its first 9 events are not in the file"),
        (
            lambda r: with_first(with_header(r, stopped="why")),
            "the engine was not watched to the end (why)",
        ),
        (
            lambda r: with_header(r, engine=Replace(r.header.engine, num_blocks=100_000)),
            "the model has limits: Its engine is not valid at $.num_blocks",
        ),
        (lambda r: with_first(r, prompt_tokens=513), "r0 has 513 tokens"),
        (lambda r: with_first(r, resumable=True), "r0 is a session"),
        (lambda r: with_first(r, reads_cache=False), "r0 reads no prefix cache"),
        (lambda r: with_first(r, request="r1"), "the model has limits: Two jobs have the name r1"),
        (lambda r: with_first(r, priority=-1), "the model has limits: priority of job r0 is -1"),
        (lambda r: r._replace(events=()), "it has no event"),
    ],
)
def test_a_record_that_no_machine_can_follow_says_why(
    record: Record, change: Callable[[Record], Record], says: str
) -> None:
    with pytest.raises(NotFollowed) as why:
        as_trace(change(record))
    assert says in str(why.value)


def arrived(name: str, tokens: int, *hashes: str) -> Arrived:
    return Arrived(
        request=name, prompt_tokens=tokens, output_tokens_max=9, hashed_tokens=2, hashes=hashes
    )


def test_prompts_are_equal_where_their_hashes_are_equal() -> None:
    made = prompts([arrived("a", 5, "1", "2"), arrived("b", 4, "1", "3"), arrived("c", 1)])
    assert {name: len(prompt) for name, prompt in made.items()} == {"a": 5, "b": 4, "c": 1}
    assert made["a"][:2] == made["b"][:2]
    assert made["a"][2:4] != made["b"][2:4]
    assert made["a"][4] not in made["b"] + made["c"]


def test_different_answers_to_one_prompt_have_no_texts() -> None:
    with pytest.raises(NotFollowed, match="got different answers"):
        prompts([arrived("a", 2, "1", "2"), arrived("b", 2, "1", "3")])


LINES = FILE.read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.mark.parametrize("count", range(len(LINES)))
def test_a_record_that_was_cut_off_is_refused(refused: Any, count: int) -> None:
    Path("bad.jsonl").write_text("".join(LINES[:count]))
    for command in ("report", "replay"):
        assert "cut off" in refused(command, "bad.jsonl")
    assert "cut off" in refused("report", "bad.jsonl", str(FILE))


@pytest.mark.parametrize(
    ("number", "fields", "says"),
    [
        (1, {"schema": 3}, "newer than the 2"),
        (1, {"schema": 1}, "older than the 2 this kvproof reads. Use KVPROOF=record to record"),
        (1, {"engine": None}, "missing required field `engine`"),
        (1, {"comment": "mine"}, "unknown field `comment`"),
        (2, {"step": 3}, "is step 3 where step 1 belongs"),
        (2, {"event": "scedule"}, "invalid enum value 'scedule'. Use schedule"),
        (2, {"tokens": {"r0": -1}}, "$.tokens"),
        (
            3,
            {"tables": [{"request": "r0", "group": 1, "at": 0, "blocks": []}]},
            "names group 1 of an engine with 1",
        ),
        (-2, {"state": {"requests": []}}, "missing required field `free_blocks`"),
        (-1, {"end": {"steps": 9}}, "counts 9 steps where the record has 6"),
    ],
)
def test_a_broken_record_is_refused(
    refused: Any, number: int, fields: dict[str, Any], says: str
) -> None:
    lines = list(LINES)
    index = number - 1 if number > 0 else number
    changed = {**json.loads(lines[index]), **fields}
    changed = {name: value for name, value in changed.items() if value is not None}
    lines[index] = json.dumps(changed) + "\n"
    Path("bad.jsonl").write_text("".join(lines))
    said = refused("report", "bad.jsonl")
    assert says in said
    assert two_sentences(said)


def test_a_trace_is_no_record(refused: Any) -> None:
    trace = str(TESTDATA.parent.parent / "findings" / "copied_before_filled" / "trace.jsonl")
    assert "does not say kind kvproof-record. Use a record file" in refused("report", trace, trace)


def test_a_record_has_no_page(refused: Any) -> None:
    for files in ([str(FILE)], [str(FILE), str(FILE)]):
        assert "has no states" in refused("report", *files, "--html", "page.html")
