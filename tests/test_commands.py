"""Each command: its exit code, what it prints, and what --json holds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import COMMANDS, EXAMPLES, main, parser
from kvproof.live.releases import Cache, Failed
from kvproof.model.faults.registry import FAULTS
from kvproof.proofs.prove import everything
from tests.planted import SHORTEST

# explore


SMALL = ["--config", "pd-full"]
BROKEN = ["--fault", "front_trim"]
VIOLATED_KEYS = {"invariant", "must_be_true", "reasons", "trace", "trace_length"}


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
    assert record["faults"] == ["front_trim"]
    assert record["seed"] == 4
    assert traces() == [Path(record["trace"])]
    events = [line for line in Path(record["trace"]).read_text().splitlines() if '"event"' in line]
    assert len(events) == record["trace_length"]


def test_invariant_narrows_to_a_guard(as_json: Any) -> None:
    broken = ["--fault", "resumes_before_late_output"]
    for guard, code in (
        ("admitted_request_was_waiting", 1),
        ("computed_tokens_are_those_scheduled", 0),
    ):
        found, _ = as_json("explore", *broken, "--invariant", guard)
        assert found == code


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
    assert record["trace_length"] < SHORTEST[fault.name]


# sample, prove and replay


def test_sample_finds_a_fault_and_its_trace_replays(as_json: Any) -> None:
    code, record = as_json("sample", "--fault", "double_free", "--invariant", "pool_adds_up")
    assert (code, record["verdict"], record["invariant"]) == (1, "VIOLATED", "pool_adds_up")
    code, replayed = as_json("replay", record["trace"])
    assert (code, replayed["verdict"]) == (1, "VIOLATED")
    assert replayed["trace_length"] == record["trace_length"]


@pytest.mark.nightly
def test_prove_refutes_a_fault_with_numbers(run: Any, as_json: Any) -> None:
    code, record = as_json("prove", *BROKEN)
    refuted = [o for o in record["obligations"] if o["verdict"] == "VIOLATED"]
    assert code == 1
    assert record["invariant"] == refuted[0]["id"]
    assert refuted[0]["numbers"]
    assert len(record["obligations"]) == len(everything())
    only = [word for each in refuted for word in ("--obligation", each["id"])]
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


def test_a_check_that_had_nothing_to_judge_is_named(run: Any) -> None:
    for search in (("sample", "--examples", "5"), ("explore",)):
        args = (*search, "--config", "full", "--invariant")
        code, out, _ = run(*args, "offered_tokens_are_loaded")
        assert code == 3
        assert "Had nothing to judge: offered_tokens_are_loaded." in out.splitlines()
        _, out, _ = run(*args, "references_are_exact")
        [judged] = [line for line in out.splitlines() if "references_are_exact" in line]
        assert re.fullmatch(r"Judged: references_are_exact [1-9]\d+ times\.", judged)


def test_a_search_in_which_no_engine_takes_a_step_is_unknown(run: Any, as_json: Any) -> None:
    _, out, _ = run("explain", "full", "--json")
    for name, prompts, verdict in (
        ("none", ["abcdefghijkl"], "UNKNOWN"),
        ("some", ["abcdefghijkl", "ab"], "EXHAUSTED"),
    ):
        cluster = json.loads(out) | {"name": name}
        cluster["engines"][0]["num_blocks"] = 3
        cluster["jobs"] = [{"name": f"r{i}", "prompt": each} for i, each in enumerate(prompts)]
        Path("few-blocks.json").write_text(json.dumps(cluster), encoding="utf-8")
        code, record = as_json("explore", "--config", "few-blocks.json")
        assert (code, record["verdict"]) == (3 * (verdict == "UNKNOWN"), verdict)
        assert record["rejected"] == ["r0"]
        _, said, _ = run("explore", "--config", "few-blocks.json")
        assert "rejected, as they fit no pool: r0" in said.splitlines()
    cluster["jobs"] = []
    Path("few-blocks.json").write_text(json.dumps(cluster), encoding="utf-8")
    assert as_json("explore", "--config", "few-blocks.json")[0] == 3


# What --json prints (`as_json` looks at its fields)


ROOT = Path(__file__).parent.parent


def test_the_output_about_a_trace(as_json: Any) -> None:
    _, found = as_json("explore", "--fault", "front_trim")
    _, record = as_json("report", found["trace"])
    lines = Path(found["trace"]).read_text(encoding="utf-8").splitlines()
    assert record["trace"] == [json.loads(line) for line in lines]


def test_the_output_on_releases(as_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: Any) -> None:
        raise Failed("no")

    monkeypatch.setattr(Cache, "installed", failed)
    monkeypatch.setattr("sys.stderr", open("progress", "w", encoding="utf-8"))  # noqa: SIM115
    trace = str(ROOT / "findings" / "superseded_state_reserved" / "trace.jsonl")
    code, record = as_json("replay", trace, "--cache", "cache", "--releases", "0.18.0")
    assert (code, record["releases"]["0.18.0"]) == (3, {"verdict": "UNKNOWN", "why": "no"})


# --help


def helped(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The text of --help."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_shown_and_understood(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(capsys, command)
    assert len(EXAMPLES[command]) >= 2
    for example in EXAMPLES[command]:
        assert f"\n  {example}\n" in text
        name, *arguments = example.split()
        assert name == "kvproof"
        assert parser().parse_args(arguments).command == command
        for argument in arguments:
            assert "/" not in argument or argument.startswith("kvproof-traces/"), argument


def test_each_fault_has_the_length_of_its_shortest_run() -> None:
    """`test_killed_by.py` asks nothing of a fault without one."""
    assert SHORTEST.keys() == FAULTS.keys()
