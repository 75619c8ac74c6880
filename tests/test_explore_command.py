"""kvproof explore: what it finds and keeps, and how it stops."""

import signal
from pathlib import Path
from typing import Any

import pytest

from kvproof.model.faults.registry import FAULTS
from kvproof.strategies.explorer.packed import PackedSearch

SMALL = ["--config", "pd-full"]
BROKEN = ["--fault", "front_trim"]
VIOLATED_KEYS = {"invariant", "must_be_true", "reasons", "trace", "trace_length", "leads_to"}


def traces() -> list[Path]:
    return sorted(Path("kvproof-traces").glob("*.jsonl"))


def test_explore_exhausts(as_json: Any) -> None:
    code, record = as_json("explore", *SMALL)
    assert (code, record["verdict"]) == (0, "EXHAUSTED")
    assert 0 < record["depth"] < record["states_distinct"] <= record["states_generated"]
    assert record["config"]["name"] == "pd-full"
    assert record["faults"] == []
    assert not VIOLATED_KEYS & set(record)
    assert traces() == []


def test_explore_that_is_cut_is_unknown(as_json: Any) -> None:
    code, record = as_json("explore", *SMALL, "--states-max", "5")
    assert (code, record["verdict"]) == (3, "UNKNOWN")
    assert "5" in record["reason"]


def test_explore_finds_a_fault_in_its_own_cluster_and_keeps_the_trace(as_json: Any) -> None:
    code, record = as_json("explore", *BROKEN, "--seed", "4")
    assert (code, record["verdict"]) == (1, "VIOLATED")
    assert record["invariant"] in FAULTS["front_trim"].breaks
    assert record["config"]["name"] == FAULTS["front_trim"].cluster
    assert record["faults"] == [{"name": "front_trim"}]
    assert record["seed"] == 4
    assert traces() == [Path(record["trace"])]
    events = [line for line in Path(record["trace"]).read_text().splitlines() if '"event"' in line]
    assert len(events) == record["trace_length"]


def test_explore_prints_the_trace_and_a_command_that_replays_it(run: Any) -> None:
    code, out, _ = run("explore", *BROKEN)
    assert code == 1
    command = next(line for line in out.splitlines() if line.startswith("Replay it: kvproof "))
    argv = command.removeprefix("Replay it: kvproof ").split()
    code, out, _ = run(*argv)
    assert code == 1
    assert out.startswith("VIOLATED, reproduced on machine model")


def test_invariant_narrows(as_json: Any) -> None:
    code, record = as_json("explore", *BROKEN, "--invariant", "pool_adds_up")
    assert (code, record["verdict"]) == (0, "EXHAUSTED")


def test_invariant_narrows_to_a_guard(as_json: Any) -> None:
    broken = ["--fault", "resumes_before_late_output"]
    for guard, code in (("admitted_request_was_waiting", 1), ("load_is_offered", 0)):
        found, _ = as_json("explore", *broken, "--invariant", guard)
        assert found == code


EXPAND = PackedSearch.expand


def interrupted(search: PackedSearch) -> None:
    """The user presses Ctrl-C while the tenth state is expanded."""
    if search.reached.expanded == 10:
        signal.raise_signal(signal.SIGINT)
    EXPAND(search)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_search_is_unknown(as_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedSearch, "expand", interrupted)
    code, record = as_json("explore", *SMALL)
    assert (code, record["verdict"], record["reason"]) == (130, "UNKNOWN", "interrupted")
    assert 1 < record["states_distinct"] < 25


def test_explore_says_what_it_does_not_compare_with_the_proofs(run: Any) -> None:
    for name, left_out in (
        ("pd-full", ""),
        ("pd-drafts-async", "the block tables of an engine (drafts, overlapping steps)"),
        ("push-full", "any step (push)"),
    ):
        _, out, _ = run("explore", "--config", name)
        said = [line for line in out.splitlines() if "not compared" in line]
        assert said == ([f"not compared with what is proved: {left_out}"] if left_out else [])


def test_explore_asks_the_guards_too(as_json: Any) -> None:
    """The guard shows one event before the invariant: the lost load of a request is computed."""
    fault = FAULTS["failed_load_waits_on"]
    code, record = as_json("explore", "--fault", fault.name)
    assert (code, record["invariant"]) == (1, "computed_tokens_are_those_scheduled")
    assert record["trace_length"] < fault.trace_events
    assert record["leads_to"]["invariant"] in fault.breaks
