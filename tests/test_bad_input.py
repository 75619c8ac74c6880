"""Bad input: exit code 2, two sentences on standard error, no traceback, nothing lost."""

from pathlib import Path
from typing import Any

import pytest

from tests import made_trees
from tests.processes import python
from tests.sentences import two_sentences

ROOT = Path(__file__).parent.parent
TRACE = str(ROOT / "findings" / "stray_report_dies" / "trace.jsonl")
CLUSTER = str(ROOT / "model" / "presets" / "clusters" / "full.json")
FAULTS_OF_TRIM = ("--fault", "front_trim", "--fault", "last_zero_blocks_yield_all")
GONE = ("--vllm", "0.33.0", "--cache", "cache")
RELEASES = str(ROOT / "findings" / "releases.json")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["explor"], "Use explore instead"),
        (["explore", "--fault", "front_trimm"], "Use front_trim instead"),
        (["explore", "--invariant", "pool_add_up"], "Use pool_adds_up instead"),
        (["explore", "--invariant", "budget_is_used"], "is an ideal"),
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
        (["replay", CLUSTER], "is a cluster file. Use a trace file"),
        (["replay", RELEASES], "is JSON of another kind. Use a trace file"),
        (["report", CLUSTER], "is a cluster file. Use a trace file"),
        (["explore", "--config", TRACE], "is a trace, a plan or a record. Use a cluster file"),
        (["report", "missing.jsonl"], "No such file"),
        (["report", "/"], "has no campaign"),
        (["explore", "--fault", "nothing"], "no fault named"),
        (["explore", "--fault", "front_trim", "--fault", "double_free"], "--config"),
        (["prove", *FAULTS_OF_TRIM], "same function"),
        (["sample", "--vllm", "0.33.0"], "Use --machine live, or leave --vllm out."),
        (["replay", TRACE, "--machine", "model", "--vllm", "0.33.0"], "or leave --vllm out."),
        (["sample", "--machine", "live", *GONE], "vLLM 0.33.0 is not in the cache folder"),
        (["replay", TRACE, "--machine", "live", *GONE], "Use pip install --no-deps --target "),
    ],
)
def test_command_line(refused: Any, argv: list[str], says: str) -> None:
    assert says in refused(*argv)


def test_a_trace_of_a_fault_replays_on_the_model_alone(refused: Any, as_json: Any) -> None:
    _, record = as_json("explore", "--fault", "front_trim")
    assert "Use --machine model." in refused("replay", record["trace"], "--machine", "live")


def test_files_in_the_way_are_left_alone(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    assert "not overwritten" in refused("gate", "--summary", "taken")
    argv = ["explore", "--fault", "front_trim", "--traces", "taken"]
    assert "(Not a directory)" in refused(*argv)
    assert "(Not a directory)" in refused(*argv[:-1], "taken/below")
    assert "(No such file or directory)" in refused("gate", "--summary", "no/s.md")
    assert (tmp_path / "taken").read_text() == "mine"


WITHOUT_VLLM = """
import sys
sys.modules["vllm"] = None
from kvproof.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "argv",
    [
        ("sample", "--machine", "live"),
        ("connector", "OffloadingConnector"),
        ("replay", TRACE),  # the machine in the trace is the default
        ("gate", "--base", "base", "--cache", "cache", "--summary", "s.md", "--json"),
    ],
    ids=lambda argv: argv[0],
)
def test_what_drives_vllm_is_refused_where_it_cannot_be_imported(
    argv: tuple[str, ...], tmp_path: Path
) -> None:
    made_trees.tree(tmp_path / "base")
    done = python("-c", WITHOUT_VLLM, *argv, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert two_sentences(" ".join(done.stderr.split())), done.stderr
    assert "vLLM cannot be imported" in " ".join(done.stderr.split())
    assert not (tmp_path / "s.md").exists()


@pytest.mark.live
@pytest.mark.parametrize(
    "name",
    ["OffloadingConector", "stores:Stor", "stores.py:Stor", "nowhere.stores:Store", "broken:Store"],
)
def test_a_connector_that_does_not_exist_is_refused(
    name: str, refused: Any, tmp_path: Path
) -> None:
    (tmp_path / "stores.py").write_text("class Store: ...\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def (", encoding="utf-8")
    assert "There is no connector" in refused("connector", name)


def test_everything_else_works_without_vllm(tmp_path: Path) -> None:
    done = python("-c", WITHOUT_VLLM, "explore", "--config", "pd-full", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("EXHAUSTED")
