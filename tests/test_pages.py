"""What the pages of docs/ show is so: their commands run, and print what stands there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from kvproof.cli.main import parser
from tests.copied_tree import copied
from tests.pages import ROOT, Shown, blocks, files, named_commands, printed, programs, shown

PAGES = sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))
EXAMPLE = ROOT / "tests" / "testdata" / "one_file"
"""The files that the how-to pages write, as `test_one_file` adds them."""

IN_A_FOLDER = (
    "docs/tutorial.md",
    "docs/explanation/core.md",
    "docs/gallery.md",
    "docs/howto/read-a-trace.md",
)
IN_A_TREE = ("docs/howto/write-an-invariant.md", "docs/howto/write-a-fault.md")
"""Pages whose commands run in a copy of kvproof, with the files of the example."""

ROOMS = ("model", "invariants", "strategies", "live", "reports", "cli", "findings", "tests", "docs")
WITH_FILES = [name for name in PAGES if "/howto/" in name or name.endswith("/architecture.md")]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def run(name: str, folder: Path, source: Path, path: Path) -> int:
    """Run what a page shows. Returns the number of its commands."""
    commands = shown(page(name))
    for each in commands:
        out = printed(each.command, folder, source, path)
        assert each.agrees(out), f"{name}: $ {each.command}\n{out}"
    return len(commands)


@pytest.mark.parametrize("name", IN_A_FOLDER)
def test_the_commands_of_a_page_print_what_it_shows(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "findings").symlink_to(ROOT / "findings")
    for file, text in files(page(name)).items():
        (folder / file).write_text(text, encoding="utf-8")
    assert run(name, folder, ROOT / "src", programs(tmp_path / "bin")) > 2


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of kvproof with the files of the example."""
    tree = copied(tmp_path_factory.mktemp("copy") / "tree")
    shutil.copytree(EXAMPLE, tree, dirs_exist_ok=True)
    return tree


@pytest.mark.parametrize("name", IN_A_TREE)
def test_the_commands_of_a_page_print_what_it_shows_in_a_tree(
    name: str, tree: Path, tmp_path: Path
) -> None:
    assert files(page(name))
    assert run(name, tree, tree / "src", programs(tmp_path / "bin")) > 1


def test_every_page_with_an_output_is_run() -> None:
    assert {name for name in PAGES if shown(page(name))} == {*IN_A_FOLDER, *IN_A_TREE}


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_page_are_understood(name: str) -> None:
    for command in named_commands(page(name)):
        known, *rest = shlex.split(command)[1:]
        assert parser().parse_args([known, *rest]).command == known, command


def named_files(text: str) -> set[str]:
    """The files and folders of kvproof that a text names."""
    rooms = "|".join(ROOMS)
    named = set(re.findall(rf"`((?:{rooms})/[\w/.-]*)`", text))
    named |= set(re.findall(r"\btests/[\w/]+\.py", text))
    return {path for path in named if "NAME" not in path and "ID" not in path}


def missing_files(text: str) -> set[str]:
    return {f for f in named_files(text) if not any((at / f).exists() for at in (ROOT, EXAMPLE))}


@pytest.mark.parametrize("name", WITH_FILES)
def test_the_files_that_a_page_names_are_there(name: str) -> None:
    assert missing_files(page(name)) == set()


def test_a_file_that_is_not_there_is_found() -> None:
    """The test of the test."""
    assert missing_files("`live/odd.py`, `live/NAME.py`, pytest tests/test_odd.py, `model/`") == {
        "live/odd.py",
        "tests/test_odd.py",
    }
    assert sum(len(named_files(page(name))) for name in WITH_FILES) > 80


@pytest.mark.parametrize("name", [name for name in PAGES if "/howto/" in name])
def test_a_file_that_a_page_shows_is_that_file(name: str) -> None:
    for file, text in files(page(name)).items():
        path = next(root / file for root in (ROOT, EXAMPLE) if (root / file).exists())
        assert text == path.read_text(encoding="utf-8")


def test_the_page_of_the_gate_shows_what_a_gate_prints() -> None:
    golden = [p.read_text(encoding="utf-8") for p in (ROOT / "tests/testdata/gate").iterdir()]
    parts = blocks(page("docs/howto/gate-a-repository.md"), "text")
    assert len(parts) > 3
    assert all(any(part in text for text in golden) for part in parts)


def test_the_times_of_the_gate_are_those_of_its_table() -> None:
    found = re.search(
        r"(\d+ s) at the median, and (\d+ s) at most", page("docs/howto/gate-a-repository.md")
    )
    table = page("reports/pull_requests.md").split("\n## ")[1]
    assert found is not None
    assert f"Median {found[1]}, at most {found[2]}." in table


def test_an_output_that_differs_is_found() -> None:
    """The test of the test."""
    [one] = shown("```console\n$ kvproof x\nfirst\n...\nlast 3 ... ms\n```\n")
    assert one == Shown("kvproof x", "first\n...\nlast 3 ... ms\n")
    assert one.agrees("first\nlast 3 of 4 ms\n")
    assert one.agrees("first \nmore\nmore\nlast 3 of 4 ms\n")
    for other in ("", "last 3 of 4 ms\n", "first\nlast 4 of 4 ms\n", "first\nlast 3 of 4 ms\nx\n"):
        assert not one.agrees(other)
    assert files("```python\n# a/b.py\nx = 1\n```\n") == {"a/b.py": "x = 1\n"}
