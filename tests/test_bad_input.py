"""Bad input: exit code 2, two sentences on standard error, no traceback, nothing lost."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli import removed
from kvproof.cli.main import main
from kvproof.model.faults.registry import FAULTS
from tests import made_trees
from tests.processes import python
from tests.sentences import two_sentences


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["explor"], "Use explore instead"),
        (["explore", "--fault", "front_trimm"], "Use front_trim instead"),
        (["explore", "--invariant", "pool_add_up"], "Use pool_adds_up instead"),
        (
            ["explore", "--config", "pd-ful"],
            "Use pd-full, or another name that kvproof explain configs lists",
        ),
        (["explore", "--config", "missing.json"], "No such file"),
        (["explore", "--config", "."], "not a regular file"),
        (["explore", "--states-max", "0"], "'0' is not an integer from 1 on"),
        (["explore", "--exampels", "3"], "--exampels"),
        (["explore", "--config"], "--config"),
        ([], "COMMAND"),
        (["sample", "--machine", "lief"], "--machine"),
        (["sample", "--examples", "-1"], "--examples"),
        (["sample", "--machine", "live", "--fault", "front_trim"], "mistake of the model"),
        (["prove", "--obligation", "trim_equal_count"], "Use trim_equal_counts instead"),
        (["prove", "--timeout-s", "nan"], "above 0"),
        (["replay", "missing.jsonl"], "No such file"),
        (["replay", "/"], "cannot be read"),
        (["report", "missing.jsonl"], "No such file"),
        (["report", "/"], "has no campaign"),
        (["explore", "--fault", "nothing"], "no fault named"),
    ],
)
def test_command_line(refused: Any, argv: list[str], says: str) -> None:
    assert says in refused(*argv)


def test_what_is_gone_says_what_does_its_work(refused: Any) -> None:
    for command, gone in removed.COMMANDS.items():
        assert refused(command, "--json").startswith(f"kvproof {command} {gone.now}. Use ")
    for (command, option), gone in removed.OPTIONS.items():
        for argument in (option, f"{option}=1"):
            said = refused(command, argument)
            assert said.startswith(f"kvproof {command} {option} {gone.now}. Use ")


def test_faults_of_different_clusters_need_a_config(refused: Any) -> None:
    one = FAULTS["front_trim"]
    other = next(
        f
        for f in FAULTS.values()
        if f.cluster != one.cluster and not {*f.replaces} & {*one.replaces}
    )
    said = refused("explore", "--fault", one.name, "--fault", other.name)
    assert "--config" in said


def test_faults_that_replace_one_function_exclude_each_other(refused: Any) -> None:
    said = refused("prove", "--fault", "front_trim", "--fault", "last_zero_blocks_yield_all")
    assert "same function" in said


def cluster(**engine: Any) -> dict[str, Any]:
    """A good cluster as plain data, with fields of its engine changed."""
    groups = [{"kind": "full", "block_size": 2}]
    return {
        "name": "custom",
        "engines": [{"name": "E", "groups": groups, "num_blocks": 4, **engine}],
        "jobs": [{"name": "r0", "prompt": "abc"}],
    }


def group(**fields: Any) -> dict[str, Any]:
    return cluster(groups=[{"kind": "full", "block_size": 2, **fields}])


def test_the_good_cluster_is_explored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.json").write_text(json.dumps(cluster()))
    assert main(["explore", "--config", str(tmp_path / "good.json")]) == 0
    assert capsys.readouterr().out.startswith("EXHAUSTED")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (group(block_size=0), "$.engines[0].groups[0].block_size: expected `int` >= 1"),
        (group(kind="ful"), "kind: invalid enum value 'ful'. Use full."),
        (group(kind="window"), "groups[0].window: window of group is 0"),
        (
            cluster(num_blocks=0),
            "$.engines[0].num_blocks: expected `int` >= 2. Use a whole number from 2 to",
        ),
        (cluster(groups=[]), "$.engines[0].groups: expected `array` of length >= 1"),
        (cluster(role="prefill"), "one prefill and one decode engine"),
        (
            cluster(
                groups=[
                    {"kind": "full", "block_size": 4},
                    {"kind": "window", "block_size": 6, "window": 2},
                ]
            ),
            "do not divide",
        ),
        (cluster(physical_per_logical=3), "not a multiple"),
        (
            cluster(
                groups=[
                    {"kind": "full", "block_size": 4},
                    {"kind": "window", "block_size": 2, "window": 2},
                ],
                kv_events=True,
            ),
            "a parent that full attention never reported",
        ),
        (cluster(retention=3), "Use a multiple of 2, or 0"),
        (cluster(retention=4), "only full attention"),
        (
            {"engines": [3]},
            "$.engines[0]: expected `object`, got `int`. Use an object with name, groups.",
        ),
        ({"name": "x"}, "missing required field `engines`. Use an object with engines."),
        ([1], "not valid at $: expected `object`, got `array`"),
        (
            {**cluster(), "jobs": [{"name": "r0", "prompt": ""}]},
            "$.jobs[0].prompt: expected `str` of length >= 1",
        ),
        (
            {**cluster(), "jobs": [{"name": "r0"}]},
            "$.jobs[0]: object missing required field `prompt`. Use an object with name, prompt.",
        ),
        ({**cluster(), "job": []}, "Use jobs."),
    ],
)
def test_config_file(refused: Any, tmp_path: Path, config: Any, says: str) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(config))
    assert says in refused("explore", "--config", "bad.json")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"nul"])
def test_config_file_that_is_not_json(refused: Any, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(text)
    assert "bad.json" in refused("explore", "--config", "bad.json")


def test_files_in_the_way_are_left_alone(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    assert "not overwritten" in refused("gate", "--junit", "taken")
    argv = ["explore", "--fault", "front_trim", "--traces", "taken"]
    assert "(Not a directory)" in refused(*argv)
    assert "(Not a directory)" in refused(*argv[:-1], "taken/below")
    assert "(No such file or directory)" in refused("gate", "--junit", "no/j.xml")
    assert (tmp_path / "taken").read_text() == "mine"


WITHOUT_VLLM = """
import sys
sys.modules["vllm"] = None
from kvproof.cli import removed
from kvproof.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_vllm(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the program where vLLM cannot be imported."""
    return python("-c", WITHOUT_VLLM, *argv, cwd=folder)


def test_live_without_vllm(tmp_path: Path) -> None:
    done = without_vllm(tmp_path, "sample", "--machine", "live")
    assert (done.returncode, done.stdout) == (2, "")
    assert two_sentences(done.stderr), done.stderr
    assert "vLLM" in done.stderr


def test_a_connector_without_vllm(tmp_path: Path) -> None:
    done = without_vllm(tmp_path, "connector", "OffloadingConnector")
    assert (done.returncode, done.stdout) == (2, "")
    assert two_sentences(done.stderr), done.stderr
    assert "vLLM cannot be imported" in done.stderr


STORE = "from abc import ABC\nif ABC:\n    class Store(ABC): ...\n"


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("OffloadingConector", "Use OffloadingConnector or another name"),
        ("nixl-pul", "Use nixl-pull or another name"),
        ("stores:Stor", "stores.py has no Stor, but Store"),
        ("stores.py:Stor", "stores.py has no Stor, but Store"),
        ("nowhere.stores:Store", "there is no module nowhere"),
        ("broken:Store", "line 1 of"),
        ("stores:", "what stands after the colon"),
    ],
)
def test_a_mistyped_connector_is_told_before_vllm_is_imported(
    name: str, says: str, refused: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stores.py").write_text(STORE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")

    def imported(*_: Any) -> None:
        raise AssertionError("the connector was looked up in vLLM")

    monkeypatch.setattr("kvproof.connectors.subject.check", imported)
    assert says in refused("connector", name)
    with pytest.raises(AssertionError, match="looked up in vLLM"):
        refused("connector", "stores:Store")


def test_a_finding_of_live_vllm_is_not_replayed_on_the_model(tmp_path: Path) -> None:
    """The machine in the trace is the default, also where it is missing."""
    trace = Path(__file__).parent.parent / "findings" / "stray_report_dies" / "trace.jsonl"
    done = without_vllm(tmp_path, "replay", str(trace))
    assert (done.returncode, done.stdout) == (2, "")
    assert two_sentences(" ".join(done.stderr.split())), done.stderr
    assert "vLLM" in done.stderr


def test_everything_else_works_without_vllm(tmp_path: Path) -> None:
    done = without_vllm(tmp_path, "explore", "--config", "pd-full")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("EXHAUSTED")


def test_a_gate_without_vllm_is_not_green(tmp_path: Path) -> None:
    made_trees.tree(tmp_path / "base")
    argv = ("--base", "base", "--cache", "cache", "--junit", "j.xml", "--json")
    done = without_vllm(tmp_path, "gate", *argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert two_sentences(done.stderr), done.stderr
    assert "vLLM cannot be imported" in done.stderr
    assert not (tmp_path / "j.xml").exists()
