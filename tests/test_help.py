"""`--help` and completion: true examples, every default, names where names are taken."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.cli.completion import SHELLS, script
from kvproof.cli.help_text import COMMANDS as GROUPED
from kvproof.cli.help_text import EXAMPLES, GROUPS, START
from kvproof.cli.main import COMMANDS, main, parser
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS

ROOT = Path(__file__).parent.parent
COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_kvproof
printf '%s\\n' "${COMPREPLY[@]}"
"""


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
def test_two_examples_are_shown_and_understood(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(capsys, command)
    assert len(EXAMPLES[command]) == 2
    for example in EXAMPLES[command]:
        assert f"\n  {example}\n" in text
        name, *arguments = example.split()
        assert name == "kvproof"
        assert parser().parse_args(arguments).command == command
        for argument in arguments:
            assert "/" not in argument or (ROOT / argument).is_file(), argument


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_group_and_shows_its_default(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = helped(capsys, command)
    said = " ".join(text.partition("\n\n")[2].split())
    assert "\noptions:" not in text
    known = {name for names in GROUPS.values() for name in names}
    for name, default, option in options(command):
        assert name in known
        assert text.count(f"\n  {option}") + text.count(f", {option}") == 1
        if isinstance(default, int | float | str) and default is not False and name != "help":
            about = said.partition(f"{option} ")[2]
            assert "default" in about.partition(" --")[0], option
    if command == "explore":
        assert "(default: 1000000)" in said


def test_the_program_names_every_command_once_and_where_to_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = helped(capsys)
    assert sorted(name for names in GROUPED.values() for name in names) == sorted(COMMANDS)
    for name in COMMANDS:
        assert text.count(f"\n  {name} ") == 1
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


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "kvproof.bash"
    path.write_text(script(parser(), "bash"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["expl"], {"explore", "explain"}),
        (["explain", "references_a"], {"references_are_exact"}),
        (["explain", "copies_in"], {"copies_in_one_batch"}),
        (["explore", "--fau"], {"--fault"}),
        (["explore", "--fault", ""], set(FAULTS)),
        (["explore", "--config", "pd-pre"], {"pd-preempting"}),
        (["explore", "--config", "own"], {"own.json"}),
        (["explore", "--config", ""], {*CLUSTERS, *LIVE_CLUSTERS, "own.json", "traces"}),
        (["sample", "--invariant", "pool_a"], {"pool_adds_up"}),
        (["sample", "--machine", ""], {"model", "live"}),
        (["gate", "--fail-on", "h"], {"hang"}),
        (["prove", "--obligation", "trim_equal_c"], {"trim_equal_counts"}),
        (["report", ""], {"own.json", "traces"}),
        (["explore", "--traces", ""], {"traces"}),
        (["--print-completion", ""], set(SHELLS)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",  # a set has no order
)
def test_bash_completes_what_is_begun(
    bash: Path, tmp_path: Path, words: list[str], completed: set[str]
) -> None:
    (tmp_path / "own.json").touch()
    (tmp_path / "traces").mkdir()
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", str(bash), "kvproof", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == completed


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvproof", "--print-completion", shell],
        env=os.environ | {"COLUMNS": "40"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "front_trim" in done.stdout
    assert "truncated_at_most_once" in done.stdout


def test_another_shell_is_bad_usage(refused: Callable[..., str]) -> None:
    assert "choose from 'bash', 'zsh', 'tcsh'" in refused("--print-completion", "cmd")


def test_the_start_does_not_load_it() -> None:
    program = "import sys; from kvproof.cli.main import main; main(['configs', '--json']); "
    program += "print([m for m in ('shtab', 'kvproof.cli.help_text') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
