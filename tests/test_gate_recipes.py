"""The recipes under gate/: their commands are run on a repository with a pull request, with the
variables that the CI system sets. `kvproof` is a stand-in that notes which commits it gets and
ends with the exit code of the case; `test_gate_live` runs a recipe with the product."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import parser
from tests.trees import git

ROOT = Path(__file__).parent.parent
RECIPES = ("github-workflow.yml", "buildkite-step.yml")
FILE = "vllm/v1/core/block_pool.py"

KVPROOF = """#!/bin/sh
[ "$1 $2 $3 $4 $6" = "gate --repo . --base --head" ] || exit 2
echo "$@" > "$CALLS/argv"
git show -s --format=%s "$5" "$7" > "$CALLS/compared" || exit 2
echo '## kvproof: a result' > kvproof.md
exit "$CODE"
"""
OTHERS = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS/calls"
cat >> "$CALLS/input"
"""


def recipe(name: str) -> Any:
    # Only `make test` installs it; the stateful tests run without.
    import yaml

    return yaml.safe_load((ROOT / "gate" / "recipes" / name).read_text(encoding="utf-8"))


def commit(folder: Path, text: str) -> None:
    (folder / FILE).parent.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(text, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", text)


class Job:
    """The machine of a CI job: `origin` has main, which has moved on, and a pull request; `work` is
    its checkout, and `bin` has stand-ins for the programs that a recipe calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin, self.work, self.bin = (folder / name for name in ("origin", "work", "bin"))
        for each in (self.origin, self.bin, folder / "temp"):
            each.mkdir()
        git(self.origin, "init", "-q", "-b", "main")
        commit(self.origin, "base")
        git(self.origin, "checkout", "-q", "-b", "change")
        commit(self.origin, "head")
        self.program("kvproof", KVPROOF)
        for name in ("python", "python3", "buildkite-agent"):
            self.program(name, OTHERS)

    def program(self, name: str, script: str) -> None:
        (self.bin / name).write_text(script, encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def run(self, script: str, **variables: str) -> int:
        """Run a step as a CI system does: a script that is ended by the first failure."""
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "KVPROOF_"))}
        given = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "KVPROOF_URL": str(self.origin),
            "CALLS": str(self.folder),
        }
        command = ["bash", "-e", "-c", script]
        return subprocess.run(
            command, cwd=self.work, env=ours | given | variables, stdin=subprocess.DEVNULL
        ).returncode

    def compared(self) -> list[str]:
        """The messages of the two commits that were compared. kvproof has all of the options."""
        argv = (self.folder / "argv").read_text(encoding="utf-8").split()
        assert parser().parse_args(argv).command == "gate"
        return (self.folder / "compared").read_text(encoding="utf-8").splitlines()


class OnGithub(Job):
    """GitHub checks the merge commit of a pull request out, with a depth of 2."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        git(self.origin, "checkout", "-q", "main")
        git(self.origin, "merge", "-q", "--no-ff", "-m", "merge", "change")
        self.jobs = recipe("github-workflow.yml")["jobs"]
        [checkout, *_] = self.jobs["run"]["steps"]
        depth = str(checkout["with"]["fetch-depth"])
        git(folder, "clone", "-q", "--depth", depth, self.origin.as_uri(), "work")
        (folder / "output").touch()

    def step(self, name: str, **variables: str) -> int:
        [step] = [each for each in self.jobs["run"]["steps"] if each.get("name") == name]
        given = recipe("github-workflow.yml")["env"] | {
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "RUNNER_TEMP": str(self.folder / "temp"),
        }
        return self.run(step["run"], **given | variables)

    def verdict(self) -> str:
        """What the check `kvproof` shows: green, red or grey."""
        verdict = self.jobs["verdict"]
        assert verdict["if"] == "${{ !cancelled() && needs.run.outputs.judged != 'no' }}"
        lines = (self.folder / "output").read_text(encoding="utf-8").splitlines()
        outputs = dict(line.split("=", 1) for line in lines)
        if outputs.get("judged", "") == "no":
            return "grey"
        [step] = verdict["steps"]
        assert step["env"] == {"CODE": "${{ needs.run.outputs.code }}"}
        return "red" if self.run(step["run"], CODE=outputs.get("code", "")) else "green"


@pytest.mark.parametrize(
    ("code", "unknown", "ends", "verdict"),
    [
        ("0", "red", 0, "green"),
        ("1", "neutral", 1, "red"),
        ("3", "red", 3, "red"),
        ("3", "neutral", 0, "grey"),
        ("3", "green", 3, "red"),
    ],
)
def test_github(tmp_path: Path, code: str, unknown: str, ends: int, verdict: str) -> None:
    job = OnGithub(tmp_path)
    assert job.step("Install kvproof") == 0
    assert job.verdict() == "red"  # a job that ends before the gate
    assert job.step("Run kvproof", CODE=code, KVPROOF_UNKNOWN=unknown) == ends
    assert job.verdict() == verdict
    assert job.compared() == ["base", "merge"]


def test_a_base_that_is_not_there_is_red(tmp_path: Path) -> None:
    job = OnGithub(tmp_path)
    trees = "--repo . --base nosuch --head HEAD"
    assert job.step("Run kvproof", CODE="0", KVPROOF_TREES=trees) == 2
    assert job.verdict() == "red"


class OnBuildkite(Job):
    """Buildkite checks the commit of the pull request out, with the whole history."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        git(folder, "clone", "-q", "-b", "change", self.origin.as_uri(), "work")
        git(self.origin, "checkout", "-q", "main")
        commit(self.origin, "main moves on")

    def commands(self, **variables: str) -> int:
        [step] = recipe("buildkite-step.yml")["steps"]
        script = "\n".join(step["commands"]).replace("$$", "$")
        return self.run(script, BUILDKITE="true", **variables)


@pytest.mark.parametrize(
    ("code", "style", "branch"),
    [("0", "success", ""), ("1", "error", "main"), ("3", "warning", "")],
)
def test_buildkite(tmp_path: Path, code: str, style: str, branch: str) -> None:
    job = OnBuildkite(tmp_path)
    assert job.commands(CODE=code, BUILDKITE_PULL_REQUEST_BASE_BRANCH=branch) == int(code)
    install, annotate = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert install == "python3 -m pip install --quiet ./kvproof"
    assert annotate == f"buildkite-agent annotate --style {style} --context kvproof"
    assert "## kvproof: " in (tmp_path / "input").read_text(encoding="utf-8")
    assert job.compared() == ["base", "head"]


def test_a_buildkite_step_without_a_result_keeps_its_exit_code(tmp_path: Path) -> None:
    job = OnBuildkite(tmp_path)
    job.program("kvproof", "#!/bin/sh\nexit 2\n")
    assert job.commands() == 2
    assert "annotate" not in (tmp_path / "calls").read_text(encoding="utf-8")


def test_the_folder_of_traces_is_the_one_they_are_written_to() -> None:
    from kvproof.cli.parser import TRACES

    for name in RECIPES:
        assert str(TRACES) in (ROOT / "gate" / "recipes" / name).read_text(encoding="utf-8")
