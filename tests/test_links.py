"""Every link of a Markdown file leads to a file or a heading, and vllm#NNN has one form."""

import subprocess
from pathlib import Path

import pytest

from tests.links import all_problems, anchors, problems

ROOT = Path(__file__).parent.parent


def pages() -> list[Path]:
    """The Markdown files under version control, and those that are new."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).exists()]


def test_every_link_leads_somewhere() -> None:
    found = pages()
    assert len(found) > 30
    assert all_problems(found, lambda path: path.relative_to(ROOT).as_posix()) == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a page to link to."""
    (tmp_path / "there.md").write_text("# A heading: `of it`\n\n## Two\n\n## Two\n", "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](there.md), [b](there.md#two-1), [c](#here)\n\n# Here\n", ""),
        ("[a](there.md#a-heading-of-it) and `[a](missing)` in vllm#48633, vllm-ascend#10545", ""),
        ("[a](https://example.org/a#b), https://example.org", ""),
        ("```\n[a](missing) vllm #3\n```\n", ""),
        ("[a](missing.md)", "missing.md: no such file"),
        ("[a]: missing.md", "missing.md: no such file"),
        ("![a](missing.png)", "missing.png: no such file"),
        ("[a](there.md#three)", "there.md#three: no such heading"),
        ("[a](#there)", "#there: no such heading"),
        ("[a]()", ": an empty link"),
        ("[a](https:/example.org)", "https:/example.org: not a well-formed address"),
        ("[a](http://example.org)", "http://example.org: not a well-formed address"),
        ("see http://example.org", "http://example.org: not a well-formed address"),
        ("[a](https://nowhere)", "https://nowhere: not a well-formed address"),
        ("vLLM#48633", "vLLM#48633: write vllm#NNN, or the repository before #"),
        ("in #48633", "in #48633: write vllm#NNN, or the repository before #"),
        ("PR 48633", "PR 48633: write vllm#NNN"),
        (
            "https://github.com/vllm-project/vllm/pull/48633",
            "github.com/vllm-project/vllm/pull/48633: write vllm#NNN",
        ),
    ],
)
def test_what_is_broken_is_found(text: str, wrong: str, folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    assert problems(page) == ([wrong] if wrong else [])


def test_equal_headings_have_anchors_of_their_own(folder: Path) -> None:
    found = anchors((folder / "there.md").read_text(encoding="utf-8"))
    assert found == {"a-heading-of-it", "two", "two-1"}


def test_every_page_of_docs_is_in_its_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    for path in docs.rglob("*.md"):
        name = path.relative_to(docs).as_posix()
        assert name == "README.md" or f"]({name})" in index, name
