"""The result of the gate in Markdown and as annotations of GitHub, and the options for it."""

import argparse
import re
from pathlib import Path

import pytest

from kvproof.cli import gate_files
from kvproof.cli.command import Parser
from kvproof.gate.formats import github, markdown
from tests.gates import ALL
from tests.sentences import two_sentences

EVERY = pytest.mark.parametrize("name", ALL)
UNKNOWN = sorted(name for name, each in ALL.items() if each.verdict == "UNKNOWN")
COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:\r\n]*,)*title=[^,:\r\n]*)::([^\r\n]*)")
"""A workflow command as the runner of GitHub reads it."""


# Markdown


@EVERY
def test_markdown_shows_every_text_as_it_is(name: str) -> None:
    parser = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    text = markdown.document(ALL[name])
    assert len(text.encode()) <= markdown.BYTES_MAX
    tokens = [each for top in parser.parse(text) for each in (top, *(top.children or ()))]
    kinds = {each.type for each in tokens}
    assert not kinds & {"html_inline", "link_open", "image", "em_open", "strong_open", "s_open"}
    for each in tokens:
        if each.type == "html_block":
            assert re.fullmatch(
                r"<details><summary>[^<>]*</summary>\n?|</details>\n?", each.content
            )
    if name == "hostile":
        shown = "".join(each.content for each in tokens if each.type == "text")
        assert "]]>&<script>%0A\\r\\n##[error]x|`*_[a](b)" in shown


# GitHub


def read(line: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as GitHub reads it: its name, its properties, its message."""
    found = COMMAND.fullmatch(line)
    assert found, line
    pairs = dict(each.split("=", 1) for each in found[2].split(","))
    for code, char in (("%3A", ":"), ("%2C", ",")):
        pairs = {key: value.replace(code, char) for key, value in pairs.items()}
    return found[1], {k: plain(v) for k, v in pairs.items()}, plain(found[3])


def plain(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


def test_an_annotation_lies_on_the_changed_line() -> None:
    [command] = github.commands(ALL["introduced"])
    name, properties, message = read(command)
    assert name == "error"
    assert properties == {
        "file": "vllm/v1/core/sched/scheduler.py",
        "line": "812",
        "title": "kvproof: truncated_at_most_once after Schedule (wrong tokens)",
    }
    assert message.splitlines()[0].startswith("on head it is not always true that a prompt")


def test_hostile_texts_stay_in_their_place() -> None:
    [command] = github.commands(ALL["hostile"])
    name, properties, message = read(command)
    assert (name, properties["file"]) == ("error", "a,b:\n%c.py")
    assert set(properties) == {"file", "line", "title"}
    assert "%0A\\r\\n##[error]" in message


@EVERY
def test_annotations_are_few_and_about_what_is_new(name: str) -> None:
    commands = github.commands(ALL[name])
    assert len(commands) <= 10
    assert bool(commands) == (ALL[name].verdict in ("VIOLATED", "UNKNOWN"))
    kinds = [read(command)[0] for command in commands]
    if name == "huge":
        assert read(commands[-1])[2] == "16 more defects introduced; the summary has all"
    if name in UNKNOWN:
        assert kinds == ["warning"]
    if name == "tolerated":
        assert kinds == ["notice"]
    if name == "several":  # the job is red by a leak too
        assert kinds == ["error", "error", "notice"]


# The options


def parsed(*argv: str) -> argparse.Namespace:
    parser = Parser("kvproof gate")
    gate_files.add_options(parser)
    return parser.parse_args(argv)


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step of GitHub Actions: the file of its summary, which exists."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    (tmp_path / "summary").write_text("of another step\n", encoding="utf-8")
    return tmp_path / "summary"


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_elsewhere")
def test_annotations_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    [file] = gate_files.files(parsed("--annotations", "github"), ALL["introduced"])
    file.write()
    assert capsys.readouterr().err.startswith("::error file=")


def test_a_summary_that_cannot_be_written_changes_no_exit_code(
    step: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step / "below" / "a file"))
    [file] = gate_files.files(parsed(), ALL["nothing"])
    file.write()
    assert file.error == ""
    assert two_sentences(capsys.readouterr().err)
