"""The result of the gate on a terminal, and as JSON."""

import io
import json
import re
from collections.abc import Callable

import msgspec
import pytest

from kvproof.gate.formats import terminal
from kvproof.reports.output.base import encoded
from kvproof.reports.output.gate import Gate
from kvproof.reports.schemas import schema
from tests.gates import ALL, finding, gate

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


@pytest.mark.parametrize("length", [1, 12, 13, 400])
def test_a_long_run_is_folded(length: int) -> None:
    events = tuple(f"event {number}" for number in range(1, length + 1))
    shown = terminal.text(gate(verdict="VIOLATED", findings=(finding(events=events),)))
    assert f">{length:3}  event {length}\n" in shown
    assert ("more events" in shown) == (length > 12)
    assert shown.count("  event ") == (length if length < 13 else 11)


def test_replay_runs_on_head() -> None:
    replay = "replay it    kvproof replay 'kvproof-traces/a path.jsonl'"
    assert f"{replay} --vllm cache/trees/c0ffee12e2d3\n" in terminal.text(ALL["several"])
    installed = msgspec.structs.replace(ALL["several"].head, path=None)
    assert f"{replay}\n" in terminal.text(msgspec.structs.replace(ALL["several"], head=installed))


# JSON


@pytest.mark.parametrize("name", sorted(set(ALL) - {"huge"}))
def test_json_matches_its_schema(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = encoded(ALL[name])
    jsonschema.Draft202012Validator(schema((Gate,))).validate(json.loads(text))
    if name != "hostile":  # a lone surrogate is no UTF-8
        assert msgspec.json.decode(text, type=Gate, strict=True) == ALL[name]
