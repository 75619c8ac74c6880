"""The gate's recipes agree with its script, and the script passes on what pytest says."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.conftest import PROFILES
from tests.sentences import two_sentences

ROOT = Path(__file__).parent.parent
RECIPES = ("github-workflow.yml", "buildkite-step.yml")
REPORT = "kvproof/kvproof-junit.xml"
TRACES = "kvproof/kvproof-traces"

PASSING = """
import pytest

@pytest.mark.stateful
def test_one(): pass

def test_of_another_kind(): pass
"""

FAILING = (
    PASSING
    + """
@pytest.mark.live
def test_two(): assert 1 == 2
"""
)


def recipe(name: str):
    # Only `make test` installs it; the stateful tests run without.
    import yaml

    return yaml.safe_load((ROOT / "gate" / name).read_text(encoding="utf-8"))


def commands_of(name: str) -> list[str]:
    """The shell commands of a recipe, in order."""
    if name == "buildkite-step.yml":
        return recipe(name)["steps"][0]["commands"]
    steps = recipe(name)["jobs"]["kvproof"]["steps"]
    return [line for step in steps for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_clones_installs_and_runs_the_script(name: str) -> None:
    clone, install, run = commands_of(name)[-3:]
    assert clone.replace("$$", "$") == 'git clone --depth 1 "$KVPROOF_URL" kvproof'
    assert install.endswith("-m pip install --quiet ./kvproof")
    assert run == "bash kvproof/gate/run.sh"
    assert (ROOT / "gate" / "run.sh").is_file()


def test_github_keeps_the_report_and_the_traces_after_a_failure() -> None:
    keep = recipe("github-workflow.yml")["jobs"]["kvproof"]["steps"][-1]
    assert keep["uses"].startswith("actions/upload-artifact@")
    assert keep["if"] == "always()"
    assert keep["with"]["path"].split() == [REPORT, TRACES]
    assert keep["with"]["if-no-files-found"] == "error"


def test_github_may_only_read() -> None:
    assert recipe("github-workflow.yml")["permissions"] == {"contents": "read"}


def test_buildkite_keeps_the_report_and_the_traces() -> None:
    [step] = recipe("buildkite-step.yml")["steps"]
    assert step["artifact_paths"] == [REPORT, f"{TRACES}/**/*"]


def test_the_folder_of_traces_is_the_one_they_are_written_to() -> None:
    from kvproof.cli.keep_traces import FOLDER
    from kvproof.cli.parser import TRACES as OF_THE_PROGRAM

    assert Path(TRACES).name == str(FOLDER) == str(OF_THE_PROGRAM)


class Gate:
    """Runs gate/run.sh with a file of tests, in a shell that has none of our variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = folder / "junit.xml"

    def run(self, tests: str, live: str = "", **more: str) -> "subprocess.CompletedProcess[str]":
        (self.folder / "test_given.py").write_text(tests, encoding="utf-8")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("KVPROOF_", "PYTEST_"))}
        env |= {
            "PYTHON": sys.executable,
            "KVPROOF_JUNIT": str(self.report),
            "KVPROOF_PYTEST_ARGS": f"-p no:cacheprovider {self.folder / 'test_given.py'}",
            "KVPROOF_REQUIRE_LIVE": live,
        }
        return subprocess.run(
            ["bash", str(ROOT / "gate" / "run.sh")],
            cwd=self.folder,
            env=env | more,
            capture_output=True,
            text=True,
        )

    def counts(self) -> tuple[int, int]:
        """Tests and failures in the report."""
        suite = ET.parse(self.report).getroot()[0]
        return int(suite.get("tests", "-1")), int(suite.get("failures", "-1"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_tests_that_pass_are_green_and_reported(gate: Gate) -> None:
    done = gate.run(PASSING)
    assert done.returncode == 0, done.stdout + done.stderr
    assert gate.counts() == (1, 0)
    assert done.stdout.splitlines()[-1].startswith("live: ")


def test_a_failure_is_passed_on_and_reported(gate: Gate) -> None:
    # conftest.py is not loaded for this file, so that the live test runs without vLLM too.
    assert gate.run(FAILING).returncode == 1
    assert gate.counts() == (2, 1)


def test_a_failure_comes_before_what_was_not_run(gate: Gate) -> None:
    assert gate.run(FAILING, live="1").returncode == 1


def test_too_few_live_tests_are_not_green(gate: Gate) -> None:
    done = gate.run(PASSING, live="1")
    assert done.returncode == 3
    assert "required are 20 passed and none skipped" in done.stdout
    assert gate.counts() == (1, 0)


def test_no_test_chosen_is_not_green(gate: Gate) -> None:
    assert gate.run("def test_of_another_kind(): pass").returncode == 5


def test_a_report_is_not_overwritten(gate: Gate) -> None:
    gate.report.write_text("mine", encoding="utf-8")
    done = gate.run(PASSING)
    assert done.returncode == 2
    assert done.stderr.count(". ") == 1
    assert "is not overwritten. Use KVPROOF_JUNIT=" in done.stderr
    assert gate.report.read_text(encoding="utf-8") == "mine"


def test_an_interpreter_without_kvproof_is_bad_usage(gate: Gate) -> None:
    done = gate.run(PASSING, PYTHON="no-such-python")
    assert done.returncode == 2
    assert "no-such-python cannot import kvproof. Use no-such-python -m pip" in done.stderr
    assert not gate.report.exists()


def test_its_own_tests_are_chosen_without_a_file(gate: Gate) -> None:
    args = "-p no:cacheprovider -k test_a_green_sample_says_what_it_covered"
    done = gate.run(PASSING, KVPROOF_PYTEST_ARGS=args)
    assert done.returncode == 0, done.stdout + done.stderr
    [case] = ET.parse(gate.report).iter("testcase")
    assert case.get("classname") == "tests.test_stateful_model"


NO_VLLM = {"sitecustomize.py": "import sys\nsys.modules['vllm'] = None\n"}
RAISES = {"vllm/__init__.py": "raise RuntimeError('torchvision::nms does not exist')\n"}
ENDS = {"vllm/__init__.py": "raise SystemExit('no driver')\n"}
EMPTY = {"vllm/__init__.py": ""}


@pytest.mark.parametrize(
    ("files", "why", "required", "code"),
    [
        (NO_VLLM, "vLLM cannot be imported", "1", 3),
        (NO_VLLM, "vLLM cannot be imported", "", 0),
        (RAISES, "torchvision::nms does not exist", "", 3),
        (ENDS, "no driver", "1", 3),
        (EMPTY, "This vLLM has no ", "1", 3),
    ],
    ids=["none", "none, and none is required", "raises", "ends", "empty"],
)
def test_a_vllm_that_cannot_be_driven_is_not_run(
    gate: Gate, files: dict[str, str], why: str, required: str, code: int
) -> None:
    place = gate.folder / "first"
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    done = gate.run(
        PASSING,
        live=required,
        PYTHONPATH=os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]),
        KVPROOF_PYTEST_ARGS="-p no:cacheprovider tests/test_live_drafts.py",
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert why in done.stdout
    assert gate.counts()[1] == 0
    assert "Traceback" not in done.stdout + done.stderr


def test_an_unknown_profile_is_bad_usage(gate: Gate) -> None:
    done = gate.run(PASSING, KVPROOF_PROFILE="nonsense")
    assert done.returncode == 2
    assert two_sentences(done.stderr), done.stderr
    assert done.stdout == ""
    assert not gate.report.exists()


def test_the_script_knows_the_profiles() -> None:
    script = (ROOT / "gate" / "run.sh").read_text(encoding="utf-8")
    assert f"    {' | '.join(PROFILES)}) ;;\n" in script
