"""The pages of docs/: the commands that they show, with the output, and the files.

A block ```console has commands after `$ `, each with its output. A line `...` stands for any
lines, and `...` within a line for any text. A block whose first line is a comment with the name of
a file (`# test_it.py`) is that file.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w/]+\.(?:py|json))\n")
PROGRAMS = {"kvproof": "kvproof", "pytest": "pytest", "python": ""}


class Shown(NamedTuple):
    """A command, and the output that a page shows of it."""

    command: str
    output: str

    def agrees(self, printed: str) -> bool:
        """Whether the output is the one that was printed."""
        pattern = "".join(_pattern(line) for line in self.output.splitlines())
        lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        return re.fullmatch(pattern, lines) is not None


def _pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, line.rstrip().split("..."))) + r"\n"


def blocks(text: str, kind: str) -> list[str]:
    """The contents of the fenced blocks of a kind."""
    return [content for found, content in FENCE.findall(text) if found == kind]


def shown(text: str) -> list[Shown]:
    """The commands that a page shows with their output, in order."""
    found = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command, output))
    return found


def files(text: str) -> dict[str, str]:
    """The files of a page by name, without the comment that names them."""
    parts = (content for _, content in FENCE.findall(text))
    return {found[1]: part[found.end() :] for part in parts if (found := NAMED.match(part))}


def named_commands(text: str) -> list[str]:
    """The command lines of kvproof in the blocks of a page, without comments."""
    lines = [line for block in blocks(text, "bash") for line in block.splitlines()]
    lines += [each.command for each in shown(text)]
    return [
        re.split(r" +#|;| \|| >", line)[0].strip() for line in lines if line.startswith("kvproof ")
    ]


def programs(folder: Path) -> Path:
    """A folder with the programs of the pages, which run the Python of this process."""
    folder.mkdir()
    for name, module in PROGRAMS.items():
        program = folder / name
        asked = f"-m {module} " if module else ""
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {asked}"$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return folder


def printed(command: str, folder: Path, source: Path, path: Path) -> str:
    """What a command line prints in a folder, with the package of this source folder: its answer,
    or its error where it has none. On a slow machine progress is on standard error."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
    environment = {
        **inherited,
        "PATH": os.pathsep.join((str(path), os.environ["PATH"])),
        "PYTHONPATH": str(source),
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout or done.stderr
