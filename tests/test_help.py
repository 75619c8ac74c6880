"""`--help`: true examples."""

import pytest

from kvproof.cli.help_text import EXAMPLES
from kvproof.cli.main import COMMANDS, main, parser
from tests.processes import python


def helped(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The text of --help."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


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


def test_the_start_does_not_load_it() -> None:
    program = "import sys; from kvproof.cli.main import main; main(['explain', '--json']); "
    program += "print([m for m in ('kvproof.cli.help_text',) if m in sys.modules])"
    done = python("-c", program)
    assert done.stdout.splitlines()[-1] == "[]"
