"""The commands: their options with defaults, and examples."""

import argparse
from collections.abc import Iterator
from itertools import chain

from kvproof.cli.main import COMMANDS as DOES
from kvproof.cli.main import EXAMPLES, parser
from tests.reference.markdown import table

OF_ALL = ("--help", "--json", "--seed")
"""Options that every command has. The page has them once."""


def listed() -> str:
    """The commands, and what each does."""
    rows = ((f"[`kvproof {name}`](#kvproof-{name})", does) for name, does in DOES.items())
    return table(("command", "what it does"), rows)


def commands() -> str:
    """A section for each command."""
    return "\n\n".join(chain.from_iterable(map(_section, DOES)))


def _section(name: str) -> Iterator[str]:
    one = _parser(name)
    yield f"### kvproof {name}"
    yield f"{DOES[name][0].upper()}{DOES[name][1:]}."
    actions = [a for a in one._actions if not _of_all(a)]
    if actions:
        yield table(("option", "meaning"), ((f"`{_usage(a)}`", _meaning(a)) for a in actions))
    yield "\n".join(["```bash", *EXAMPLES[name], "```"])


def _parser(name: str) -> argparse.ArgumentParser:
    [action] = (a for a in parser(name)._actions if isinstance(a, argparse._SubParsersAction))
    one = action.choices[name]
    assert isinstance(one, argparse.ArgumentParser)
    return one


def _meaning(action: argparse.Action) -> str:
    """The help of an argument, with its default."""
    return argparse.HelpFormatter("")._expand_help(action)


def _of_all(action: argparse.Action) -> bool:
    return bool(set(OF_ALL) & set(action.option_strings))


def _usage(action: argparse.Action) -> str:
    """How an argument is written."""
    if not action.option_strings:
        return str(action.metavar)
    if action.nargs == 0:
        return action.option_strings[0]
    value = "|".join(map(str, action.choices)) if action.choices else action.metavar or "N"
    return f"{action.option_strings[0]} {value}"
