"""The interface of a command: a module with a line of help, its options, and a function that runs
it."""

import argparse
from typing import Protocol


class Command(Protocol):
    """One command. `run` returns the exit code."""

    @property
    def HELP(self) -> str:
        """One line of help."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this command."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command."""
