"""The gate on real vLLM: a copy of its Python files with a mistake, against vLLM as it is."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvproof.live.availability import place
from kvproof.live.trees.files import files
from tests.processes import started

pytestmark = pytest.mark.live

POOL = "v1/core/block_pool.py"
BUDGET = "240"
"""In seconds. The search ends at the first finding; this is for slow machines."""


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """What a source checkout has of the vLLM that is importable: its Python files."""
    for name, path in files(place()):
        if name.endswith(".py"):
            copy = tmp_path / "head" / "vllm" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return tmp_path / "head"


def gate(folder: Path, *more: str) -> "tuple[subprocess.CompletedProcess[bytes], dict[str, Any]]":
    """Judge the folder `head` against vLLM as it is."""
    argv = ("gate", "--vllm", "head", "--base", str(place().parent), "--cache", "cache")
    ran = started([*argv, "--budget", BUDGET, "--json", *more], folder, timeout=600)
    assert ran.stdout, ran.stderr.decode()
    return ran, json.loads(ran.stdout)


def test_a_mistake_of_one_line_is_found_and_its_trace_shows_it(head: Path) -> None:
    path = head / "vllm" / POOL
    before, touch, rest = path.read_text("utf-8").partition("    def touch(")
    wrong = rest.replace("block.ref_cnt += 1", "block.ref_cnt = 1", 1)
    assert wrong != rest
    path.write_text(before + touch + wrong, encoding="utf-8")
    ran, record = gate(head.parent, "--junit", "j.xml")
    assert (ran.returncode, record["verdict"]) == (1, "VIOLATED"), record
    assert record["changed_functions"] == [f"{POOL}:BlockPool.touch"] == record["reached"]
    failing = [finding for finding in record["findings"] if finding["fails"]]
    assert "references_are_exact" in {finding["invariant"] for finding in failing}
    [found] = [f for f in failing if f["invariant"] == "references_are_exact"]
    assert (found["kind"], found["known"]) == ("introduced", None)
    assert [place["function"] for place in found["places"]] == ["BlockPool.touch"]
    line = path.read_text("utf-8").splitlines()[found["places"][0]["line"] - 1]
    assert "ref_cnt = 1" in line
    assert Path(head.parent / "j.xml").is_file()
    assert found["trace"] == "kvproof-traces/references_are_exact.jsonl"
    made = found["reproducer"]
    assert (made["head"], made["base"]) == ("fails", "passes"), record["not_run"]
    text = (head.parent / made["path"]).read_text("utf-8")
    assert "kvproof" not in "".join(re.findall("^(?:import|from) .*$", text, re.MULTILINE))
    again = ("replay", found["trace"], "--machine", "live", "--cache", "cache", "--json", "--vllm")
    for tree, code in (("head", 1), (str(place().parent), 0)):
        ran = started([*again, tree], head.parent, timeout=300)
        assert ran.returncode == code, ran.stdout + ran.stderr


def test_a_private_method_that_has_another_name_is_unknown_and_named(head: Path) -> None:
    word = re.compile(r"\b_preempt_request\b")
    for path in (head / "vllm" / "v1").rglob("*.py"):
        text = path.read_text("utf-8")
        if word.search(text):
            path.write_text(word.sub("_preempt_this_request", text), encoding="utf-8")
    ran, record = gate(head.parent)
    assert (ran.returncode, record["verdict"], record["findings"]) == (3, "UNKNOWN", [])
    assert record["reason"].startswith("head cannot be driven: This vLLM has no ")
    assert "Scheduler._preempt_request" in record["reason"]
