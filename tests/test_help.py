"""`--help`: true examples and every default."""

import re
from pathlib import Path

import pytest

from kvproof.cli.help_text import EXAMPLES, START
from kvproof.cli.main import COMMANDS, main, parser
from tests.processes import python

ROOT = Path(__file__).parent.parent


def helped(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The text of --help."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def options(command: str) -> "list[tuple[str, object, str]]":
    """Name, default and help of each option of a command."""
    actions = parser()._subparsers._group_actions[0].choices[command]._actions  # type: ignore[union-attr,call-overload,index]
    return [(a.dest, a.default, a.option_strings[0]) for a in actions if a.option_strings]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_shown_and_understood(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(capsys, command)
    assert len(EXAMPLES[command]) >= 2
    for example in EXAMPLES[command]:
        assert f"\n  {example}\n" in text
        name, *arguments = example.split()
        assert name == "kvproof"
        assert parser().parse_args(arguments).command == command
        for argument in arguments:
            assert "/" not in argument or argument.startswith("kvproof-traces/"), argument


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_shows_its_default(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = helped(capsys, command)
    said = " ".join(text.partition("\n\n")[2].split())
    for name, default, option in options(command):
        assert len(re.findall(rf"(?:\n  |, ){option}(?![\w-])", text)) == 1
        if isinstance(default, int | float | str) and default is not False and name != "help":
            about = said.partition(f"{option} ")[2]
            assert "default" in about.partition(" --")[0], option
    if command == "explore":
        assert "(default: 1000000)" in said


def test_the_program_names_every_command_once_and_where_to_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = helped(capsys)
    for name in COMMANDS:
        assert len(re.findall(rf"\n    {name}\s", text)) == 1
    for start, what in START:
        assert f"\n  {start}\n      {what}\n" in text
        if "COMMAND" not in start:
            parser().parse_args(start.split()[1:])


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = helped(capsys, *command.split()).splitlines()
    assert all(len(x) <= width or x.strip() in EXAMPLES.get(command, ()) for x in lines)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_does_not_fail_where_the_terminal_is_narrow(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert "usage: kvproof" in helped(capsys, *command.split())


def test_the_start_does_not_load_it() -> None:
    program = "import sys; from kvproof.cli.main import main; main(['explain', '--json']); "
    program += "print([m for m in ('kvproof.cli.help_text',) if m in sys.modules])"
    done = python("-c", program)
    assert done.stdout.splitlines()[-1] == "[]"
