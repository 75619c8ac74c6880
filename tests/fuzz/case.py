"""A case: one command line with the files, the environment and the streams that it finds."""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Maker = Callable[[Path], None]
"""Makes something at a path that is no plain file."""

MAIN = "kvproof"
"""The program `kvproof`."""

HOLDS, VIOLATED, REFUSED, UNKNOWN, NOT_PRINTED = 0, 1, 2, 3, 4
"""The exit codes."""

LIVE_SUMMARY = "kvproof.cli.live_summary"
"""The program `python -m kvproof.cli.live_summary`."""


@dataclass(frozen=True)
class Case:
    """One run of a program.

    `files` are made in the working folder before the run, by name. `outputs` are the names that
    may appear there, `replaces` those that may change. `invalid` says why the input must be
    refused; empty if it may be accepted; `refusals` are the exit codes of a run that does not
    believe it. `same_as` are the fields of the JSON output that the run must have if it is not
    refused. `vllm` is the content of a fake vLLM; None if vLLM cannot be found. `stdout` and
    `stderr` are `file`, `full` or `closed`; `encoding` is that of both. With `process`, the case
    is a process of its own, because Python reads some variables at its start only. `user` is
    `bound` for a user whom permissions bind, or `nameless` for one without a name; see `users`.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes | Maker] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    invalid: str = ""
    refusals: tuple[int, ...] = (REFUSED,)
    program: str = MAIN
    environment: Mapping[str, str | None] = field(default_factory=dict)
    stdout: str = "file"
    stderr: str = "file"
    encoding: str = "utf-8"
    vllm: str | None = None
    same_as: Mapping[str, Any] | None = None
    process: bool = False
    user: str = ""

    @property
    def as_json(self) -> bool:
        """Whether standard output must be one JSON object."""
        asks = {"--help", "-h", "--version"} & set(self.argv)
        return "--json" in self.argv and not asks and self.program != LIVE_SUMMARY

    def more(self, **fields: Any) -> "Case":
        """The case with other fields."""
        return replace(self, **fields)


def fifo(path: Path) -> None:
    """A pipe without a writer."""
    os.mkfifo(path)


def folder(path: Path) -> None:
    """A folder with a file in it."""
    path.mkdir()
    (path / "mine").write_bytes(b"mine")


def unreadable(path: Path) -> None:
    """A file without permissions."""
    path.write_bytes(b"{}")
    path.chmod(0)


def read_only_folder(path: Path) -> None:
    """A folder without the permission to write."""
    path.mkdir()
    path.chmod(0o555)


def unix_socket(path: Path) -> None:
    """A socket."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


def link_to(target: str) -> Maker:
    """A symbolic link."""

    def make(path: Path) -> None:
        path.symlink_to(target)

    return make


def sparse(size: int) -> Maker:
    """A file of this many zero bytes that takes no room on the disk."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make
