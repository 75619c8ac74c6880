"""The traces of the findings: the shortest known run that shows each.

`findings/` has a folder for each; the link in this folder makes them a part of the package.
"""

from collections.abc import Iterator
from pathlib import Path

from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read

FOLDER = Path(__file__).parent / "findings"


def paths() -> list[Path]:
    """The files of all traces. The folder of each has the name of its finding."""
    return sorted(FOLDER.glob("*/trace.jsonl"))


def all_of() -> Iterator[tuple[str, Trace]]:
    """The name of each finding that has a trace, with its trace."""
    for path in paths():
        yield path.parent.name, read(path)
