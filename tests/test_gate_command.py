"""The command line of `kvproof gate`: which trees it takes, what it refuses, what it prints and
writes. The trees are made up; the live test drives real ones."""

import importlib.util
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from kvproof.gate.search import workloads
from kvproof.live.trees import Tree
from tests import gates, made_trees
from tests.made_trees import DIFFERENT, POOL, SAME, base_and_head, tree
from tests.sentences import two_sentences


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--repo", ".", "--vllm", "base", "--base", "x"), "Use one of them."),
        (("--repo", "."), "is no git clone"),
        (("--head", "x"), "Use --vllm for a folder."),
        (("--vllm", "nowhere", "--base", "base"), "nowhere"),
        (("--vllm", "base", "--base", "nowhere"), "nowhere"),
        (("--vllm", "base", "--base", "."), "There is no vLLM"),
        (("--budget", "0"), "'0' is not an integer from 1 on"),
        (("--fail-on", "leek"), "Use leak"),
        (("--config", "pd"), "--config"),
        (("--summary", "base"), "not overwritten"),
        (("--sarif", "no/s.sarif"), "No such file"),
        (("--summary", "same", "--sarif", "same"), "Use a path for each."),
    ],
    ids=" ".join,
)
def test_what_is_refused(refused: Any, tmp_path: Path, argv: tuple[str, ...], says: str) -> None:
    tree(tmp_path / "base")
    assert says in refused("gate", *argv, "--cache", "cache")
    assert not list(Path().glob("*.sarif"))


def test_without_a_base_the_installed_vllm_is_not_compared_with_itself(
    refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kvproof.cli.gate.named", lambda *_: Tree("installed", Path("vllm"), (), "1")
    )
    assert "There is no vLLM to compare with" in refused("gate", "--cache", "cache")


def test_equal_trees_are_unchanged(run: Any, as_json: Any, tmp_path: Path) -> None:
    tree(tmp_path / "base")
    code, out, err = run(*SAME)
    assert (code, err) == (0, "")
    assert out.startswith("The KV-cache accounting is unchanged: base has the same files as base.")
    code, record = as_json(*SAME)
    assert (code, record["verdict"], record["changed_functions"]) == (0, "UNCHANGED", [])
    assert record["ran"] == {"traces": 0, "sampled": 0, "steps": 0, "compared": 0, "differing": 0}


def test_another_text_that_means_the_same_is_unchanged(as_json: Any, tmp_path: Path) -> None:
    base_and_head(tmp_path, POOL.replace("Free blocks.", "Give blocks back."))
    code, record = as_json(*DIFFERENT)
    assert (code, record["verdict"], record["changed_functions"]) == (0, "UNCHANGED", [])


def test_a_change_elsewhere_is_counted_and_not_driven(run: Any, tmp_path: Path) -> None:
    base_and_head(tmp_path, POOL)
    for side, number in (("base", 1), ("head", 2)):
        (tmp_path / side / "vllm" / "color.py").write_text(f"def red():\n    return {number}\n")
    code, out, _ = run(*DIFFERENT)
    assert code == 0
    assert "head changes no function of it; it changes 1 other function." in " ".join(out.split())


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("v1/worker/block_table.py", "the block tables of the worker"),
        ("distributed/kv_transfer/kv_connector/v1/nowhere_connector.py", "KV connectors"),
    ],
)
def test_a_part_that_is_not_driven_is_unknown_at_once(
    as_json: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, part: str
) -> None:
    """No process is started for it."""
    base_and_head(tmp_path, POOL)
    for side, number in (("base", 1), ("head", 2)):
        path = tmp_path / side / "vllm" / file
        path.parent.mkdir(parents=True)
        path.write_text(f"def finished():\n    return {number}\n")
    monkeypatch.setattr("kvproof.gate.search.judge.judged", None)
    code, record = as_json(*DIFFERENT)
    assert (code, record["verdict"]) == (3, "UNKNOWN")
    unknown = f"head changes accounting that no run of kvproof drives yet: {part} (1 function)"
    assert record["reason"].startswith(unknown)
    assert [(each["part"], each["runs"]) for each in record["functions"]] == [(part, 0)]


def test_without_torch_it_says_so_before_anything_is_imported(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_and_head(tmp_path)
    find = importlib.util.find_spec

    def without_torch(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_torch)
    monkeypatch.setattr("kvproof.gate.search.judge.started", lambda *_: pytest.fail("it starts"))
    assert "vLLM cannot be imported. Use make live" in refused(*DIFFERENT)


@pytest.fixture
def _no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs for trees that can be driven are not computed."""
    monkeypatch.setattr(workloads, "of_faults", list)
    monkeypatch.setattr(workloads, "of_findings", list)


@pytest.mark.usefixtures("_no_runs")
def test_trees_that_cannot_be_driven_are_unknown(as_json: Any, tmp_path: Path) -> None:
    base_and_head(tmp_path)
    code, record = as_json(*DIFFERENT)
    assert (code, record["verdict"]) == (3, "UNKNOWN")
    assert record["reason"].startswith("head cannot be driven: This vLLM has no vllm.config")
    assert record["changed_functions"] == ["v1/core/block_pool.py:BlockPool.free"]
    [function] = record["functions"]
    assert (function["part"], function["runs"]) == ("the scheduler and the block pool", 0)
    assert record["head"]["path"] == str(tmp_path / "head")
    assert not Path("kvproof-traces").exists()


@pytest.mark.usefixtures("_no_runs")
def test_a_head_that_cannot_be_imported_is_unknown_with_its_own_traceback(
    run: Any, tmp_path: Path
) -> None:
    noise = "import os\nprint('noise')\nos.write(1, b'noise')\n"
    tree(tmp_path / "base", begins=noise)
    tree(tmp_path / "head", made_trees.CHANGED, begins=noise, config="def broken(:\n")
    code, out, err = run(*DIFFERENT)
    assert (code, err) == (3, "")
    assert out.startswith("UNKNOWN: head cannot be driven: vLLM cannot be imported (SyntaxError: ")
    assert "vllm/config.py:1: def broken(:" in out
    assert "noise" not in out
    assert "/importlib/" not in out


FILES = ("--sarif", "s.sarif", "--summary", "s.md")


def test_on_github_the_summary_of_the_step_is_written_without_an_option(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path / "base")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert run(*SAME)[0] == 0
    first = Path("summary.md").read_text(encoding="utf-8")
    assert "unchanged" in first
    assert run(*SAME)[0] == 0
    assert Path("summary.md").read_text(encoding="utf-8").startswith(first)
    assert run(*SAME, "--annotations", "none")[0] == 0
    assert Path("summary.md").read_text(encoding="utf-8").count("## kvproof") == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no folder" / "summary.md"))
    code, _, err = run(*SAME)
    assert code == 0
    assert two_sentences(err), err
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    monkeypatch.setattr("kvproof.cli.gate.output", lambda *_: gates.ALL["introduced"])
    assert run(*SAME, "--annotations", "github")[2].startswith("::error file=")


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_is_unknown_and_is_in_the_files(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_and_head(tmp_path)

    def interrupted(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("kvproof.cli.gate.changed", interrupted)
    code, out, err = run(*DIFFERENT, *FILES)
    assert (code, err) == (130, "")
    assert out.startswith("UNKNOWN: interrupted.")
    assert json.loads(Path("s.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    for file in FILES[1::2]:
        assert "interrupted" in Path(file).read_text(encoding="utf-8")


def test_a_file_that_is_lost_takes_nothing_from_the_verdict(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path / "base")
    assert run(*SAME)[0] == 0  # its mirror is made

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvproof.model.files.writing._whole", full)
    code, out, err = run(*SAME, "--summary", "s.md")
    assert (code, out.split(":")[0]) == (2, "The KV-cache accounting is unchanged")
    assert two_sentences(err), err
    monkeypatch.setattr("kvproof.cli.gate.output", lambda *_: gates.ALL["introduced"])
    code, out, err = run(*SAME, "--summary", "s.md")
    assert (code, out.split(" (")[0]) == (1, "1 defect introduced")
    assert two_sentences(err), err
    code, out, err = run(*SAME, "--summary", "s.md", "--json")
    assert (code, json.loads(out)["exit_code"]) == (1, 1)
    assert not Path("s.md").exists()
