"""The words of the glossary: nothing that a person reads uses a name that was replaced.

The test reads Markdown files, docstrings, comments, the sentences of checks and commands (every
string with a space), shell and YAML files, golden transcripts, and the output of `kvproof COMMAND
--help` and of the commands that list something. `DONE` are the folders that it covers. In
`ROOMS` it reads identifiers too, and each public class has a name of its own.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kvproof.cli.main import COMMANDS, main, parser

REPLACED = {
    r"customs": "allowed variations",
    r"tall(?:y|ies)": "counting abstraction, counts",
    r"ties?|tied": "conformance",
    r"strays?": "unmatched steps",
    r"drawn": "random clusters",
    r"no_return": "point_of_no_return",
    r"sketch(?:es)?": "cluster template",
    r"not_whole": "PREFIX_EVICTED",
    r"lets? go|letting go|let down|let_down": "freed, invalidated",
    r"told|tells?|said|hears?|heard": "reported, message, receives",
    r"hand(?:s|ed|ing)?[- ]?(?:over|back)s?": "KV transfer, reverse transfer",
    r"junctions?": "shared prefix boundary",
    r"astray": "misqueued",
    r"teeth|born[_ ]of": "killed_by, origin",
    r"unfolded": "expanded orbits",
    r"adopt(?:s|ed|ion|ing)?": "FinishLoad",
}
"""The left column of the glossary as patterns, and what to use instead."""

NAMES = {
    "notice": "live_line",
    "goal.py": "termination",
    "proof": "eagle_drop_tokens",
    "peek": "eagle_drop_blocks",
    "counted": "num_cached_blocks",
    "asked": "submitted_prompt_tokens",
    "partial": "partial_block_hits",
    "turns": "follow_up_turns",
    "having": "with_request",
    "putting": "with_engine",
    "moving": "with_transfer",
}
"""The words of the left column that are ordinary English too: drafts are counted, a user asked for
tokens, Z3 finds a proof. They are wrong only as names, in backticks or before a value."""

ALLOWED = (
    r"stray[_ ]report\w*|StrayReport|pd-stray|`stray`|stray false",
    r"drawn (?:as|to)",
    r"\| `turns` \|",
)
"""Where a replaced word is right: as another term, or as the name of an event, a fault or a preset
that has it."""

DONE = (
    "README.md",
    "docs",
    "campaign",
    "cli",
    "connectors",
    "findings",
    "gate",
    "invariants",
    "benchmarks",
    "live",
    "model",
    "proofs",
    "reports",
    "strategies",
    "tests/testdata",
    "watch",
)
"""Folders whose words are right."""

ROOMS = (
    "campaign",
    "cli",
    "connectors",
    "gate",
    "invariants",
    "live",
    "model",
    "proofs",
    "reports",
    "src/kvproof",
    "strategies",
    "watch",
)
"""The rooms of the program."""

GENERATED = "live/reproducer/fragments"
"""The text of generated files, which import nothing of kvproof: their classes are not its own."""

PUBLISHED = ("says", "stray")
"""Identifiers that are fields of published files: of a reason, and of a cluster."""

ROOT = Path(__file__).parent.parent
WORDS = re.compile(
    rf"\b(?:{'|'.join(REPLACED)})\b|`(?:{'|'.join(NAMES)})`|\b(?:{'|'.join(NAMES)}) [\[\d]",
    re.IGNORECASE,
)
IDENTIFIER = re.compile(rf"\b(?:asked|says|{'|'.join(REPLACED)})\b", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z_]\w*")
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
PART_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
EXCUSED = re.compile("|".join(ALLOWED))
SENTENCE = re.compile(r"\s")


@cache
def files() -> list[Path]:
    """The files of the tree that are under version control."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for name in listed.stdout.split() if not (path := ROOT / name).is_dir()]


def of(folder: str) -> list[Path]:
    return [f for f in files() if f.is_relative_to(ROOT / folder)]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """What a person reads in a file, with line numbers."""
    if path.suffix == ".py":
        yield from _in_python(path.read_text(encoding="utf-8"))
    elif path.suffix in (".md", ".sh", ".yml", ".txt", ".html", ".js"):
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), 1)


def _in_python(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and SENTENCE.search(text.strip()):
            yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def wrong(text: str) -> list[str]:
    """The replaced words in a text, without those that are right where they stand."""
    return WORDS.findall(EXCUSED.sub("", text))


@cache
def misnamed(name: str) -> bool:
    """Whether an identifier has a replaced word."""
    words = " ".join(PART_OF_NAME.findall(name)).lower()
    return name not in PUBLISHED and bool(IDENTIFIER.search(EXCUSED.sub("", words)))


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """The misnamed identifiers of a file, with line numbers. Only a file that has such a word
    anywhere is parsed."""
    if not any(map(misnamed, set(NAME.findall(source)))):
        return
    for node in ast.walk(ast.parse(source)):
        for field in ("name", "id", "attr", "arg", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str) and misnamed(name):
                yield getattr(node, "lineno", 0), name


def in_two(sources: dict[str, str]) -> list[str]:
    """The names that several public classes have, with their files."""
    places: dict[str, list[str]] = {}
    for file, source in sources.items():
        for name in PUBLIC_CLASS.findall(source):
            places.setdefault(name, []).append(file)
    return [f"{name}: {', '.join(of)}" for name, of in places.items() if len(of) > 1]


@cache
def sources() -> dict[str, str]:
    """The files of the rooms."""
    paths = [path for room in ROOMS for path in of(room) if path.suffix == ".py"]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.parametrize("folder", DONE)
def test_no_replaced_word_is_read(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {', '.join(wrong(text))}"
        for path in of(folder)
        for line, text in texts(path)
        if wrong(text)
    ]
    assert not found, "\n".join(found)


def test_no_identifier_has_one() -> None:
    found = [
        f"{file}:{line}: {name}"
        for file, source in sources().items()
        for line, name in identifiers(source)
    ]
    assert not found, "\n".join(found)


def test_each_public_class_has_a_name_of_its_own() -> None:
    own = {file: text for file, text in sources().items() if not file.startswith(GENERATED)}
    found = in_two(own)
    assert not found, "\n".join(found)


def test_every_folder_has_files() -> None:
    assert all(of(folder) for folder in (*DONE, *ROOMS))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_text_has_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([command, "--help"])
    assert not wrong(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["invariants", "faults"])
def test_no_list_has_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 0
    assert not wrong(capsys.readouterr().out)


def test_a_replaced_word_is_found() -> None:
    """The test of the test."""
    assert wrong("P lets go of blocks that are handed over") == ["lets go", "handed over"]
    assert wrong("`counted` of r1, asked 4") == ["`counted`", "asked 4"]
    assert wrong("a StrayReport is counted; the user asked for 4 tokens") == []


def test_a_misnamed_identifier_is_found() -> None:
    """The test of the test."""
    assert all(map(misnamed, ("is_told", "AskedAgain", "_said", "TOLD")))
    assert not any(map(misnamed, ("StrayReport", "says", "untold", "basked")))
    found = identifiers("class AskedAgain:\n    def f(self, is_told): # who asked?\n        x.said")
    assert sorted(found) == [(1, "AskedAgain"), (2, "is_told"), (3, "said")]
    assert in_two({"a.py": "class Row:", "b.py": "class _Row:", "c.py": "class Rows:"}) == []
    assert in_two({"a.py": "class Row:", "b.py": "class Row(X):"}) == ["Row: a.py, b.py"]
