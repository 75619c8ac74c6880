"""The recipes under gate/: their commands are run on a repository with a planted mistake, with the
variables that the CI system sets. `kvproof` is a stand-in that writes with the code of the product
(tests/gate_stub.py); to run another program, change `KVPROOF`."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gate_stub import FILE
from tests.trees import git

ROOT = Path(__file__).parent.parent
KVPROOF = f'exec {sys.executable} {ROOT}/tests/gate_stub.py "$@"'
RECIPES = ("github-workflow.yml", "buildkite-step.yml")

CLEAN = "class BlockPool:\n    def free(self, blocks):\n        self.queue.extend(blocks)\n"
HEADS = {
    "clean": CLEAN.replace("blocks)", "freed)"),
    "planted": CLEAN + "        self.queue.pop()  # a mistake\n",
    "renamed": CLEAN.replace("def free", "def release"),
}
"""The file on head, by what the pull request does."""


def recipe(name: str) -> Any:
    # Only `make test` installs it; the stateful tests run without.
    import yaml

    return yaml.safe_load((ROOT / "gate" / "recipes" / name).read_text(encoding="utf-8"))


def commit(folder: Path, text: str, message: str) -> None:
    (folder / FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(text, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", message)


class Done(NamedTuple):
    """A step that was run."""

    code: int
    out: str
    err: str


class Job:
    """The machine of a CI job: `origin` has main and a pull request, `work` is its checkout, and
    `bin` has stand-ins for the programs that a recipe calls."""

    def __init__(self, folder: Path, head: str) -> None:
        self.folder = folder
        self.origin, self.work, self.bin = (folder / name for name in ("origin", "work", "bin"))
        for each in (self.origin, self.bin, folder / "temp"):
            each.mkdir()
        git(self.origin, "init", "-q", "-b", "main")
        (self.origin / "requirements").mkdir()
        (self.origin / "requirements" / "common.txt").touch()
        commit(self.origin, CLEAN, "base")
        git(self.origin, "checkout", "-q", "-b", "change")
        commit(self.origin, HEADS[head], "head")
        self.program("kvproof", KVPROOF)
        for name in ("python", "python3", "buildkite-agent"):
            self.program(name, f'echo {name} "$@" >> {folder}/calls; cat >> {folder}/input')
        (folder / "calls").touch()

    def program(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def run(self, script: str, **variables: str) -> Done:
        """Run a step as a CI system does: a script of its own, ended by the first failure."""
        file = self.folder / "step.sh"
        file.write_text(script, encoding="utf-8")
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "KVPROOF_"))}
        env = {
            **ours,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "KVPROOF_URL": str(self.origin),
            **variables,
        }
        done = subprocess.run(
            ["bash", "-e", str(file)],
            cwd=self.work,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    @property
    def sarif(self) -> Any:
        """The only run of the SARIF file."""
        return json.loads((self.work / "kvproof.sarif").read_text(encoding="utf-8"))["runs"][0]

    @property
    def junit(self) -> ET.Element:
        """The suite of the JUnit file."""
        return ET.parse(self.work / "kvproof.xml").getroot()


class OnGithub(Job):
    """GitHub checks the merge commit of a pull request out, with a depth of 2."""

    def __init__(self, folder: Path, head: str) -> None:
        super().__init__(folder, head)
        git(self.origin, "checkout", "-q", "main")
        git(self.origin, "merge", "-q", "--no-ff", "-m", "merge", "change")
        self.jobs = recipe("github-workflow.yml")["jobs"]
        [checkout, *_] = self.jobs["run"]["steps"]
        depth = str(checkout["with"]["fetch-depth"])
        git(folder, "clone", "-q", "--depth", depth, self.origin.as_uri(), "work")

    def step(self, name: str, **variables: str) -> Done:
        [step] = [each for each in self.jobs["run"]["steps"] if each.get("name") == name]
        given = recipe("github-workflow.yml")["env"] | {
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "RUNNER_TEMP": str(self.folder / "temp"),
        }
        return self.run(step["run"], **{**given, **variables})

    @property
    def outputs(self) -> dict[str, str]:
        lines = (self.folder / "output").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def verdict(self) -> str:
        """What the check `kvproof` shows: green, red or grey."""
        verdict = self.jobs["verdict"]
        assert verdict["if"] == "${{ !cancelled() && needs.run.outputs.judged != 'no' }}"
        if self.outputs.get("judged", "") == "no":
            return "grey"
        [step] = verdict["steps"]
        assert step["env"] == {"CODE": "${{ needs.run.outputs.code }}"}
        code = self.run(step["run"], CODE=self.outputs.get("code", "")).code
        return "red" if code else "green"


@pytest.mark.parametrize(
    ("head", "unknown", "code", "verdict"),
    [
        ("clean", "red", 0, "green"),
        ("planted", "red", 1, "red"),
        ("planted", "neutral", 1, "red"),
        ("renamed", "red", 3, "red"),
        ("renamed", "neutral", 0, "grey"),
        ("renamed", "green", 3, "red"),
    ],
)
def test_github(tmp_path: Path, head: str, unknown: str, code: int, verdict: str) -> None:
    job = OnGithub(tmp_path, head)
    assert job.step("Install kvproof").code == 0
    done = job.step("Run kvproof", KVPROOF_UNKNOWN=unknown)
    assert done.code == code, done
    assert job.verdict() == verdict
    assert job.sarif["invocations"][0]["executionSuccessful"] == (head != "renamed")
    assert job.junit.get("errors") == ("2" if head == "renamed" else "0")
    assert job.junit.get("failures") == ("1" if head == "planted" else "0")


def test_a_planted_mistake_is_shown_on_its_line(tmp_path: Path) -> None:
    job = OnGithub(tmp_path, "planted")
    done = job.step("Run kvproof")
    assert done.out.startswith("1 defect introduced (wrong tokens): ")
    assert done.err.startswith(f"::error file={FILE},line=4,title=kvproof%3A ")
    [result] = job.sarif["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]) == (FILE, {"startLine": 4})
    assert result["baselineState"] == "new"
    assert result["codeFlows"]
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert summary.startswith("## kvproof: 1 defect introduced (wrong tokens): ")


def test_a_job_that_ends_before_the_gate_is_red(tmp_path: Path) -> None:
    job = OnGithub(tmp_path, "clean")
    (tmp_path / "output").touch()
    assert job.verdict() == "red"
    assert job.step("Run kvproof", KVPROOF_TREES="--repo . --base nosuch --head HEAD").code == 2
    assert job.verdict() == "red"


class OnBuildkite(Job):
    """Buildkite checks the commit of the pull request out, with the whole history."""

    def __init__(self, folder: Path, head: str) -> None:
        super().__init__(folder, head)
        git(folder, "clone", "-q", "-b", "change", self.origin.as_uri(), "work")
        git(self.origin, "checkout", "-q", "main")
        commit(self.origin, HEADS["renamed"], "main moves on")

    def commands(self, **variables: str) -> Done:
        [step] = recipe("buildkite-step.yml")["steps"]
        script = "\n".join(step["commands"]).replace("$$", "$")
        return self.run(script, BUILDKITE="true", **variables)


@pytest.mark.parametrize(
    ("head", "code", "style"),
    [("clean", 0, "success"), ("planted", 1, "error"), ("renamed", 3, "warning")],
)
@pytest.mark.parametrize("branch", ["", "main"])
def test_buildkite(tmp_path: Path, head: str, code: int, style: str, branch: str) -> None:
    job = OnBuildkite(tmp_path, head)
    done = job.commands(BUILDKITE_PULL_REQUEST_BASE_BRANCH=branch)
    assert done.code == code, done
    install, annotate = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert install == "python3 -m pip install --quiet ./kvproof"
    assert annotate == f"buildkite-agent annotate --style {style} --context kvproof"
    assert "## kvproof: " in (tmp_path / "input").read_text(encoding="utf-8")
    assert job.junit.get("failures") == ("1" if head == "planted" else "0")
    assert len(job.sarif["results"]) == (head == "planted")


def test_a_buildkite_step_without_a_result_keeps_its_exit_code(tmp_path: Path) -> None:
    job = OnBuildkite(tmp_path, "clean")
    job.program("kvproof", "exit 2")
    assert job.commands().code == 2
    assert "annotate" not in (tmp_path / "calls").read_text(encoding="utf-8")


def test_the_folder_of_traces_is_the_one_they_are_written_to() -> None:
    from kvproof.cli.parser import TRACES

    for name in RECIPES:
        assert str(TRACES) in (ROOT / "gate" / "recipes" / name).read_text(encoding="utf-8")
