"""The pages are true: their generated parts are what the code makes, their links lead somewhere,
and their commands print what stands there.

`pytest tests/test_pages.py --rewrite` makes the generated parts anew.
"""

import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvproof.cli.main import parser
from kvproof.model.traces.trace import PlanRun
from kvproof.model.traces.trace_reader import read_run
from kvproof.proofs.prove import prove
from tests.conftest import CAREFUL, rewritten
from tests.copied_tree import with_example
from tests.gallery import Picture, ledger, pictures
from tests.pages import ROOT, blocks, files, named_commands, printed, programs, shown
from tests.reference import BLOCKS
from tests.reference.markdown import with_blocks
from tests.reference.obligations import table as obligations
from tests.reference.schemas import TYPES
from tests.reference.schemas import text as schema

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
SHOWN = ["README.md", *PAGES]
IN_A_FOLDER = (
    "README.md",
    "docs/tutorial.md",
    "docs/explanation/core.md",
    "docs/gallery.md",
    "docs/howto/read-a-trace.md",
)
IN_A_TREE = ("docs/howto/write-an-invariant.md", "docs/howto/write-a-fault.md")
"""Pages whose commands run in a copy of kvproof, with the files of the example."""

Rewrite = Callable[[Path, str], None]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# Plans


@pytest.mark.parametrize("at", range(2))
def test_the_plans_that_a_page_shows_can_be_read(at: int, tmp_path: Path) -> None:
    _, plans = page("docs/reference/files.md").split("\n## Plans\n")
    path = tmp_path / "plan.jsonl"
    path.write_text(blocks(plans, "json")[at])
    assert isinstance(read_run(path), PlanRun)


# Generated parts


@pytest.fixture
def generated(pytestconfig: pytest.Config) -> Rewrite:
    """Compare a page with what is made now, or rewrite it where `--rewrite` is given."""

    def compare(path: Path, made: str) -> None:
        text = path.read_text(encoding="utf-8")
        if pytestconfig.getoption("--rewrite") and made != text:
            path.write_text(made, encoding="utf-8")
            pytestconfig.stash[rewritten].append(path.name)
            return
        again = "if that is right run pytest tests/test_pages.py --rewrite"
        assert made == text, f"{path.name} differs: {again}, {CAREFUL}"

    return compare


@pytest.mark.parametrize("name", BLOCKS)
def test_the_generated_parts_of_a_page_are_what_the_code_makes(
    name: str, generated: Rewrite
) -> None:
    path = ROOT / "docs" / "reference" / name
    generated(path, with_blocks(path.read_text(encoding="utf-8"), BLOCKS[name]))


@pytest.mark.parametrize("name", TYPES)
def test_a_published_schema_is_that_of_the_types(name: str, generated: Rewrite) -> None:
    generated(ROOT / "docs" / "schemas" / name, schema(name))


def test_a_trace_of_a_finding_matches_the_published_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(schema("trace.json")))
    lines = (ROOT / "findings" / "uncomputed_stays_cached" / "trace.jsonl").read_text("utf-8")
    for line in map(json.loads, lines.splitlines()):
        check.validate(line)
        assert not check.is_valid({**line, "comment": "mine"})


@pytest.mark.proof
@pytest.mark.nightly
def test_the_table_of_obligations_is_what_is_proved() -> None:
    assert obligations(prove()) == page("reports/obligations.md")


@pytest.mark.parametrize("picture", pictures(), ids=lambda each: each.file.stem)
def test_a_picture_of_the_gallery_is_of_the_trace_beside_it(picture: Picture) -> None:
    again = f"{picture.file.name} is old: run python -m tests.gallery, and look at the pictures"
    digest = ledger(picture.command).digest.encode()
    assert b"kvproof\0" + digest in picture.file.read_bytes(), again


# Links. Nothing is asked of the network


BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]*)>?[^)]*\)")
DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]: +(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)


def broken_links(path: Path) -> Iterator[str]:
    """The links of a page to a file or a heading that is not there, each with the reason."""
    text = CODE.sub("", BLOCK.sub("", path.read_text(encoding="utf-8")))
    for link in (*LINK.findall(text), *DEFINED.findall(text)):
        if not link.startswith(("http:", "https:", "mailto:")) and (why := _broken(path, link)):
            yield f"{link}: {why}"


def _broken(path: Path, link: str) -> str:
    """Why a link leads nowhere. Empty if it leads somewhere."""
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if not target.exists():
        return "no such file"
    if not anchor:
        return "" if name else "an empty link"
    if target.suffix != ".md":
        return "an anchor of a file that is no page"
    return "" if anchor in anchors(target.read_text(encoding="utf-8")) else "no such heading"


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(BLOCK.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def test_every_link_leads_somewhere() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [path for name in listed.stdout.splitlines() if (path := ROOT / name).exists()]
    assert len(found) > 30
    assert [f"{path.name}: {link}" for path in found for link in broken_links(path)] == []


def test_every_page_of_docs_is_in_its_index() -> None:
    index = page("docs/README.md")
    names = [name.removeprefix("docs/") for name in PAGES]
    assert [name for name in names if name != "README.md" and f"]({name})" not in index] == []


# Examples


def commands_run(name: str, folder: Path, source: Path, path: Path) -> int:
    """Run what a page shows. Gives the number of its commands."""
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
    assert commands_run(name, folder, ROOT / "src", programs(tmp_path / "bin"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of kvproof with the files of the example."""
    return with_example(tmp_path_factory.mktemp("copy"))


@pytest.mark.parametrize("name", IN_A_TREE)
def test_the_commands_of_a_page_print_what_it_shows_in_a_tree(
    name: str, tree: Path, tmp_path: Path
) -> None:
    assert files(page(name))
    assert commands_run(name, tree, tree / "src", programs(tmp_path / "bin"))


def test_every_page_with_an_output_is_run() -> None:
    assert {name for name in SHOWN if shown(page(name))} == {*IN_A_FOLDER, *IN_A_TREE}


@pytest.mark.parametrize("name", SHOWN)
def test_the_commands_of_a_page_are_understood(name: str) -> None:
    indented = re.findall(r"^ {4}(?:\$ )?(kvproof [^#\n]+?) *(?:#.*)?$", page(name), re.MULTILINE)
    for command in (*named_commands(page(name)), *indented):
        known, *rest = shlex.split(command)[1:]
        assert parser().parse_args([known, *rest]).command == known, command


def test_the_page_of_the_gate_shows_what_a_gate_prints() -> None:
    golden = [p.read_text(encoding="utf-8") for p in (ROOT / "tests/testdata/gate").iterdir()]
    parts = blocks(page("docs/howto/gate-a-repository.md"), "text")
    assert len(parts) > 3
    assert all(any(part in text for text in golden) for part in parts)
