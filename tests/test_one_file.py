"""What is added in one file, and in no other: an invariant, a fault, a guard, a preset, a known
finding. A copy of the tree gets one of each (`testdata/one_file`), is run, and keeps its
tests: all of them (`make nightly`, because they take as long as `make test`). The commands of the
how-to pages, which `test_pages` runs in such a copy, find the fault by the invariant.

An attribute that vLLM has renamed is followed in one line of the contract.
"""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.copied_tree import EXAMPLE, ROOT, run, with_example
from tests.test_commits import git

INVARIANT, FAULT = "whoever_runs_is_running", "request_stays_in_running_queue"
GUARD = "whoever_is_scheduled_computes"
PRESET = "full-beside-window-of-five"
FILES = {
    f"invariants/{INVARIANT}.py",
    f"model/faults/{FAULT}.py",
    f"invariants/{GUARD}.py",
    "live/known/my_findings.py",
    f"model/presets/clusters/{PRESET}.json",
}

WATCHED = f"""
from tests.test_watch import CLUSTERS, Watched

def test_watched():
    watched = Watched()
    watched.run(CLUSTERS["full"])
    assert not watched.found
    assert watched.times_judged["{INVARIANT}"]
    assert watched.times_judged["{GUARD}"]
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the new files."""
    return with_example(tmp_path_factory.mktemp("copy"))


def answer(tree: Path, *command: str) -> Any:
    """What a command of the copy prints as JSON."""
    done = run(tree, "kvproof", *command, "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_each_is_one_file_that_is_new() -> None:
    files = {path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*.*")}
    assert files == FILES
    assert not any((ROOT / name).exists() for name in FILES)


@pytest.mark.live
@pytest.mark.nightly
def test_a_copy_keeps_all_its_tests(tmp_path: Path) -> None:
    """A repository with the new files, but for the known finding, which has no page. The
    generated pages are made anew by the command that the how-to pages name."""
    tree = with_example(tmp_path)
    (tree / "live" / "known" / "my_findings.py").unlink()
    made = run(tree, "pytest", "-q", "tests/test_pages.py", "--rewrite")
    rewritten = {"asked.md", "clusters.md", "faults.md", "invariants.md"}
    assert {name for name in rewritten if name in made.stdout} == rewritten, made.stdout
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "new files")
    others = ("--ignore", "tests/test_one_file.py", "-m", "not nightly", "-n", "2")
    done = run(tree, "pytest", "-q", "tests", *others)
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_new_preset_is_explored(tree: Path) -> None:
    record = answer(tree, "explore", "--config", PRESET)
    assert (record["verdict"], record["states_distinct"]) == ("EXHAUSTED", 29)


def test_new_checks_are_asked_of_the_model_driven_vllm_and_the_sanitizer(tree: Path) -> None:
    for name in (INVARIANT, GUARD):
        [told] = answer(tree, "explain", name)["explanations"]
        assert told["where"].endswith("on the model and on driven vLLM; and by the sanitizer")


@pytest.mark.live
@pytest.mark.nightly
def test_the_sanitizer_asks_the_new_checks(tree: Path) -> None:
    (tree / "tests" / "test_new.py").write_text(WATCHED, encoding="utf-8")
    done = run(tree, "pytest", "-q", "tests/test_new.py")
    (tree / "tests" / "test_new.py").unlink()
    assert "\n1 passed" in done.stdout, done.stdout


def renamed(folder: Path, old: str, new: str) -> Path:
    """The folder, with links to the installed vLLM, and those modules of `v1` written anew that say
    `old`: they say `new`. Nothing is imported."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    home, word = Path(spec.origin).parent, re.compile(rf"\b{old}\b")
    saying = {path for path in (home / "v1").rglob("*.py") if word.search(path.read_text("utf-8"))}
    assert saying
    opened = {parent for path in saying for parent in path.parents if parent.is_relative_to(home)}
    for inside in sorted(opened):
        (folder / "vllm" / inside.relative_to(home)).mkdir(parents=True)
        for each in inside.iterdir():
            place = folder / "vllm" / each.relative_to(home)
            if each in saying:
                place.write_text(word.sub(new, each.read_text("utf-8")), encoding="utf-8")
            elif each not in opened and each.name != "__pycache__":
                place.symlink_to(each)
    return folder


@pytest.mark.nightly
@pytest.mark.live
def test_a_renamed_attribute_of_vllm_is_followed_in_one_line(tree: Path, tmp_path: Path) -> None:
    vllm = renamed(tmp_path, "num_preemptions", "preemption_count")
    sampled = ("kvproof", "sample", "--machine", "live", "--config", "full-evicting", "--json")
    contract = tree / "live" / "contract" / "contract.toml"
    was, now = '"Request.num_preemptions"', '"Request.preemption_count as num_preemptions"'
    text = contract.read_text(encoding="utf-8")
    assert text.count(was) == 1
    contract.write_text(text.replace(was, now), encoding="utf-8")
    done = run(tree, *sampled, "--examples", "8", first=vllm)
    contract.write_text(text, encoding="utf-8")
    assert json.loads(done.stdout)["verdict"] == "SAMPLED", done.stdout + done.stderr
