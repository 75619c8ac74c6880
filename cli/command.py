"""What a command is: a module with a line of help, options, and something to run."""

import argparse
from typing import Protocol


class Command(Protocol):
    """One command. `run` returns the exit code."""

    HELP: str

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add its options."""

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Do it."""
