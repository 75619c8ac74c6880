"""The gate on real vLLM: a copy of its Python files with a mistake, against vLLM as it is."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.live.availability import place
from kvproof.live.trees import Tree, environment
from kvproof.live.trees.mirror import files
from kvproof.model.presets import CLUSTERS
from tests.processes import ROOT, started
from tests.test_gate_recipes import recipe
from tests.trees import git
from tests.watching import live_machine

pytestmark = pytest.mark.live

POOL = "v1/core/block_pool.py"
BUDGET = "900"
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


def inspect_models(cache: Path) -> None:
    """Keep in a cache folder of the gate what vLLM has found of the models of engines: to inspect
    one takes a process that imports all of vLLM, and `test_live_trees` sees what is kept."""
    from vllm import envs

    live_machine(CLUSTERS["async-drafts"])
    kept = environment(Tree("", place(), (cache / "trees" / "one" / "first",), ""))
    found = Path(envs.VLLM_CACHE_ROOT) / "modelinfos"
    shutil.copytree(found, Path(kept["VLLM_CACHE_ROOT"]) / "modelinfos")


def on_github(clone: Path) -> "subprocess.CompletedProcess[str]":
    """Run the recipe for GitHub on the last commit of a clone, with this kvproof."""
    steps = recipe("github-workflow.yml")["jobs"]["run"]["steps"]
    [step] = [each for each in steps if "id" in each]
    program = clone.parent / "bin" / "kvproof"
    program.parent.mkdir()
    cache = clone.parent / "cache"
    inspect_models(cache)
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m kvproof "$@" --cache {cache} --budget {BUDGET}\n'
    )
    program.chmod(0o755)
    given = recipe("github-workflow.yml")["env"] | {
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(clone.parent / "output"),
        "GITHUB_STEP_SUMMARY": str(clone.parent / "summary"),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=clone,
        env=os.environ | given,
        capture_output=True,
        text=True,
        timeout=1800,
    )


def test_the_recipe_for_github_finds_a_mistake_of_one_line(head: Path) -> None:
    git(head, "init", "-q")
    git(head, "add", ".")
    git(head, "commit", "-qm", "base")
    path = head / "vllm" / POOL
    before, touch, rest = path.read_text("utf-8").partition("    def touch(")
    wrong = rest.replace("block.ref_cnt += 1", "block.ref_cnt = 1", 1)
    assert wrong != rest
    path.write_text(before + touch + wrong, encoding="utf-8")
    git(head, "commit", "-qam", "head")

    ran = on_github(head)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert (head.parent / "output").read_text() == "code=1\n"
    assert "::error file=vllm/v1/core/block_pool.py,line=" in ran.stderr

    results = json.loads((head / "kvproof.sarif").read_text())["runs"][0]["results"]
    new = [each for each in results if each.get("baselineState") == "new"]
    [found] = [each for each in new if each["ruleId"] == "references_are_exact"]
    place_of = found["locations"][0]["physicalLocation"]
    of_repository = {"uri": "vllm/v1/core/block_pool.py", "uriBaseId": "%SRCROOT%"}
    assert place_of["artifactLocation"] == of_repository
    line = path.read_text("utf-8").splitlines()[place_of["region"]["startLine"] - 1]
    assert "ref_cnt = 1" in line

    trace = head / "kvproof-traces" / "references_are_exact.jsonl"
    made = (head / "kvproof-traces" / "test_references_are_exact.py").read_text("utf-8")
    assert "kvproof" not in "".join(re.findall("^(?:import|from) .*$", made, re.MULTILINE))
    assert "it fails on head and passes on base" in " ".join(ran.stdout.split()), ran.stdout
    again = ("replay", str(trace), "--machine", "live", "--cache", "cache", "--vllm", "head")
    ran_again = started(again, head.parent, timeout=600)
    assert ran_again.returncode == 1, ran_again.stdout + ran_again.stderr
