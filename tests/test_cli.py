"""Every command: its exit code, what it prints, what `--json` holds."""

from pathlib import Path
from typing import Any

import pytest

import kvproof
from kvproof.proofs.prove import everything
from tests.processes import python

SMALL = ["--config", "pd-full"]
BROKEN = ["--fault", "front_trim"]


def test_sample(as_json: Any) -> None:
    code, record = as_json("sample", *SMALL, "--examples", "3", "--steps", "5", "--seed", "1")
    assert (code, record["verdict"]) == (0, "SAMPLED")
    assert record["examples"] >= 3
    assert record["seed"] == 1
    assert record["machine"] == "model"


def test_sample_finds_a_fault_and_its_trace_replays(as_json: Any) -> None:
    code, record = as_json("sample", "--fault", "double_free", "--invariant", "pool_adds_up")
    assert (code, record["verdict"], record["invariant"]) == (1, "VIOLATED", "pool_adds_up")
    code, replayed = as_json("replay", record["trace"])
    assert (code, replayed["verdict"]) == (1, "VIOLATED")
    assert replayed["trace_length"] == record["trace_length"]


def test_prove(as_json: Any) -> None:
    code, record = as_json("prove", "--obligation", "trim_equal_counts")
    assert (code, record["verdict"]) == (0, "PROVED")
    assert [o["name"] for o in record["obligations"]] == ["trim_equal_counts"]


@pytest.mark.nightly
def test_prove_refutes_a_fault_with_numbers(run: Any, as_json: Any) -> None:
    code, record = as_json("prove", *BROKEN)
    refuted = [o for o in record["obligations"] if o["verdict"] == "VIOLATED"]
    assert code == 1
    assert record["invariant"] == refuted[0]["name"]
    assert refuted[0]["numbers"]
    assert len(record["obligations"]) == len(everything())
    only = [word for each in refuted for word in ("--obligation", each["name"])]
    code, out, _ = run("prove", *BROKEN, *only)
    assert code == 1
    assert sum(line.startswith("VIOLATED") for line in out.splitlines()) == len(refuted) + 1


def without_the_fault(record: Any, finding: bool = True) -> str:
    """The trace of a violation, to be replayed on a model without the fault; with its finding or
    without."""
    path = Path(record["trace"])
    lines = path.read_text().replace('"faults": ["front_trim"]', '"faults": []').splitlines()
    changed = path.with_name("changed.jsonl")
    changed.write_text("".join(f"{x}\n" for x in lines if finding or '{"finding"' not in x))
    return str(changed)


def test_replay_says_that_a_finding_is_not_shown_again(run: Any, as_json: Any) -> None:
    _, record = as_json("explore", *BROKEN)
    changed, count = without_the_fault(record), record["trace_length"]
    code, replayed = as_json("replay", changed)
    assert (code, replayed["verdict"], replayed["followed"]) == (0, "SAMPLED", count)
    assert set(replayed["differs"]) == {"step", "event", "field", "recorded", "replayed"}
    assert replayed["differs"]["step"] == count
    code, out, _ = run("replay", changed)
    first, differs, last = out.splitlines()
    said = f"NOT SHOWN AGAIN: all {count} events were followed; {record['invariant']} is not"
    assert (code, first[: len(said)]) == (0, said)
    assert differs.startswith(f"The run first differs at step {count}, ")
    assert last.startswith("SAMPLED: followed to the end on machine model, and ")


def test_replay_of_a_trace_without_a_finding_says_where_it_differs(run: Any, as_json: Any) -> None:
    _, record = as_json("explore", *BROKEN)
    changed = without_the_fault(record, finding=False)
    code, replayed = as_json("replay", changed)
    assert (code, replayed["verdict"]) == (1, "DIFFERS")
    assert replayed["differs"]["step"] == record["trace_length"]
    code, out, _ = run("replay", changed)
    assert (code, out.split()[0]) == (1, "DIFFERS")


def test_replay_does_not_know_where_it_cannot_follow(run: Any, as_json: Any) -> None:
    _, record = as_json("explore", *BROKEN)
    changed = Path(without_the_fault(record))
    comes = '"event": {"type": "Submit", "engine": "P", "request": "r0"}'
    assert comes in changed.read_text()
    changed.write_text(changed.read_text().replace(comes, comes.replace("r0", "r1")))
    code, replayed = as_json("replay", str(changed))
    assert (code, replayed["verdict"]) == (3, "UNKNOWN")
    assert replayed["reason"].startswith("not followed at event ")
    code, out, _ = run("replay", str(changed))
    assert (code, out.split(":")[0]) == (3, "NOT FOLLOWED")


def test_the_module_is_the_program() -> None:
    done = python("-m", "kvproof", "--version")
    assert done.stdout == f"kvproof {kvproof.__version__}\n"


def test_a_check_that_had_nothing_to_judge_is_named(run: Any) -> None:
    args = ("sample", "--config", "full", "--examples", "5", "--invariant")
    _, out, _ = run(*args, "offered_tokens_are_loaded")
    assert "Had nothing to judge: offered_tokens_are_loaded." in out.splitlines()
    _, out, _ = run(*args, "references_are_exact")
    assert "nothing to judge" not in out
