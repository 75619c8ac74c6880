"""The result of the gate on a terminal, as JSON, SARIF, Markdown and annotations of
GitHub, whatever texts it has."""

import io
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kvproof.gate.formats import github, markdown, sarif, terminal
from kvproof.reports.document import document
from kvproof.reports.gate_output import Gate
from tests.conftest import TESTDATA
from tests.gates import ALL, STILL, gate
from tests.reference.schemas import schema

Golden = Callable[[str, str], None]
EVERY = pytest.mark.parametrize("name", ALL)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"hostile", "huge"}))
def test_what_a_maintainer_reads(name: str, golden: Golden) -> None:
    golden(f"gate/{name.replace(' ', '_')}.txt", terminal.text(ALL[name]))


@EVERY
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    lines = terminal.text(ALL[name]).splitlines()
    for line in lines:
        to_copy = line.lstrip().startswith("replay it ")
        assert len(line) <= 80 or to_copy or len(line.split()) == 1, line
    assert all(line.isprintable() for line in lines)


class Screen(io.StringIO):
    """A terminal of unknown size."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_a_terminal_has_colours_and_a_file_has_whole_lines() -> None:
    screen, file = Screen(), io.StringIO()
    terminal.show(ALL["introduced"], screen)
    terminal.show(ALL["introduced"], file)
    assert "\x1b[1;31m1 defect introduced" in screen.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert plain == terminal.text(ALL["introduced"])
    assert "\x1b" not in file.getvalue()
    assert "true that a prompt is truncated at most once, also if its" in file.getvalue()
    assert " ".join(plain.split()) == " ".join(file.getvalue().split())


def test_no_line_begins_as_a_command_of_a_ci_system() -> None:
    """A runner removes spaces first."""
    file = io.StringIO()
    terminal.show(ALL["hostile"], file)
    assert not [x for x in file.getvalue().splitlines() if x.lstrip().startswith(("::", "##["))]
    assert "::error::" in file.getvalue()


def test_replay_runs_on_head() -> None:
    replay = "replay it    kvproof replay 'kvproof-traces/a path.jsonl'"
    assert f"{replay} --vllm cache/trees/c0ffee12e2d3\n" in terminal.text(ALL["several"])
    installed = msgspec.structs.replace(ALL["several"].head, path=None)
    assert f"{replay}\n" in terminal.text(msgspec.structs.replace(ALL["several"], head=installed))


# JSON


@pytest.mark.parametrize("name", sorted(set(ALL) - {"huge"}))
def test_json_matches_its_schema(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = document("gate", ALL[name].exit_code, ALL[name])
    jsonschema.Draft202012Validator(schema((Gate,))).validate(json.loads(text))
    if name != "hostile":  # a lone surrogate is no UTF-8
        assert msgspec.json.decode(text, type=Gate, strict=True) == ALL[name]


UNKNOWN = sorted(name for name, each in ALL.items() if each.verdict == "UNKNOWN")

# SARIF


def sarif_of(result: Gate) -> dict[str, Any]:
    log = json.loads(sarif.document(result))
    jsonschema = pytest.importorskip("jsonschema")
    rules = json.loads((TESTDATA / "sarif_of_the_gate.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(rules).validate(log)
    [run] = log["runs"]
    for each in run["results"]:
        assert run["tool"]["driver"]["rules"][each["ruleIndex"]]["id"] == each["ruleId"]
    return run


@EVERY
def test_sarif_matches_its_schema(name: str) -> None:
    run = sarif_of(ALL[name])
    assert len(run["results"]) == len(ALL[name].findings)
    if name == "hostile":  # a severity that nobody knows
        assert run["results"][0]["level"] == "error"
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] == (name not in UNKNOWN)
    assert invocation["exitCode"] == ALL[name].exit_code
    assert len(sarif.document(ALL[name])) < 10_000_000


def test_only_what_is_introduced_is_new_in_sarif() -> None:
    found = sarif_of(gate(verdict="VIOLATED", findings=(*ALL["several"].findings, *STILL)))
    states = {
        state: [each for each in found["results"] if each["baselineState"] == state]
        for state in ("new", "unchanged", "absent")
    }
    assert {state: len(each) for state, each in states.items()} == {
        "new": 3,
        "unchanged": 3,
        "absent": 1,
    }
    assert not any("suppressions" in each for each in states["new"])
    assert all("suppressions" in each for each in states["unchanged"] + states["absent"])
    assert states["absent"][0]["kind"] == "pass"
    prints = [each["partialFingerprints"]["kvproofSignature/v1"] for each in found["results"]]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_was_not_judged_is_in_the_notifications(name: str) -> None:
    [invocation] = sarif_of(ALL[name])["invocations"]
    notes = [each["message"]["text"] for each in invocation["toolExecutionNotifications"]]
    assert notes[0].startswith("UNKNOWN: ")
    wanted = [each.entry for each in ALL[name].lost] or ALL[name].reason.splitlines()[-1:]
    assert wanted[0] in "\n".join(notes)


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


def test_hostile_texts_stay_in_their_place() -> None:
    [command] = github.commands(ALL["hostile"])
    name, properties, message = read(command)
    assert (name, set(properties)) == ("error", {"file", "line", "title"})
    assert properties["file"].count("[error]x|") == 1
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


@pytest.mark.parametrize(("name", "code"), [("costs", 1), ("no effect", 3)])
def test_what_an_option_refuses_is_red_in_every_format(name: str, code: int) -> None:
    green, red = ALL[name], msgspec.structs.replace(ALL[name], exit_code=code)
    assert not any(each.startswith("::error") for each in github.commands(green))
    assert any(each.startswith("::error") for each in github.commands(red))
