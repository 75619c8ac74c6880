"""A tree of vLLM."""

from pathlib import Path
from typing import NamedTuple


class Tree(NamedTuple):
    """A vLLM that a process can import.

    `name` is what people read. `package` is the folder of the package `vllm`, with its real files.
    A process that imports the tree has `folders` first on its path, in this order; there are none
    for a vLLM that is importable as it is. `version` is "unknown" where no metadata has it.
    """

    name: str
    package: Path
    folders: tuple[Path, ...]
    version: str
