"""What a command is: a module with a line of help, options, and something to run."""

import argparse
from typing import Protocol


class Command(Protocol):
    """One command, as its module has it. `run` returns the exit code."""

    @property
    def HELP(self) -> str:
        """One line of help."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add its options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it."""
