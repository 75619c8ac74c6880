"""The Python files of a package of vLLM, read from a folder that nobody vouches for."""

import os
from collections.abc import Collection
from pathlib import Path

from kvproof.gate.source.units import ERRORS, Module
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_bytes, shown

WHAT = "source file"

FILES_MAX = 50_000
"""A folder with more Python files is not a vLLM."""

PROGRAM_MAX_MIB = 2
"""A larger file is compared and not parsed."""

ANY_MIB = 1 << 20


class Package:
    """The folder `vllm` of a tree. `files` are its Python files by their paths in the package;
    `links` are folders that are links, by where they lead: those are not entered.

    Raises UsageError where the folder is missing or is no package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, Path] = {}
        self.links: dict[str, str] = {}
        self.parsed: dict[str, Module | None] = {}
        self.shared: dict[str, Package] = {}
        if not (folder / "__init__.py").is_file():
            raise UsageError(
                f"The folder {shown(folder)} is not a Python package. "
                "Use the folder 'vllm' of a vLLM."
            )
        for root, folders, names in os.walk(folder):
            within = Path(root).relative_to(folder)
            for name in sorted(folders):
                if os.path.islink(path := os.path.join(root, name)):
                    self.links[(within / name).as_posix()] = os.path.realpath(path)
            for name in names:
                if name.endswith(".py"):
                    self.files[(within / name).as_posix()] = Path(root, name)
            if len(self.files) > FILES_MAX:
                raise UsageError(
                    f"The folder {shown(folder)} has more than {FILES_MAX} Python files. "
                    "Use the folder 'vllm' of a vLLM."
                )

    def module(self, file: str) -> Module | None:
        """A file as a module; None where it is not a program that can be read."""
        if file in self.shared:
            return self.shared[file].module(file)
        if file not in self.parsed:
            self.parsed[file] = self._parsed(file)
        return self.parsed[file]

    def share(self, other: "Package", different: Collection[str]) -> None:
        """Use what another package parses, for the files that are the same."""
        for file in self.files.keys() - set(different):
            self.shared[file] = other

    def _parsed(self, file: str) -> Module | None:
        try:
            content = read_bytes(self.files[file], WHAT, PROGRAM_MAX_MIB)
            return Module(content, module_name(file), file.endswith("__init__.py"))
        except (UsageError, *ERRORS):
            return None


def module_name(file: str) -> str:
    """The name of the module in a file of the package: `vllm.v1.request`."""
    parts = ["vllm", *file.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def same(base: Path, head: Path) -> bool:
    """Whether two files have the same bytes; False where one cannot be read."""
    try:
        if os.path.getsize(base) != os.path.getsize(head):
            return False
        return read_bytes(base, WHAT, ANY_MIB) == read_bytes(head, WHAT, ANY_MIB)
    except (UsageError, OSError, ValueError):
        return False


def different(base: Package, head: Package) -> list[str]:
    """The files that only one package has, or that have other bytes, in order."""
    return [
        file
        for file in sorted(base.files.keys() | head.files.keys())
        if file not in base.files
        or file not in head.files
        or not same(base.files[file], head.files[file])
    ]


def links(base: Package, head: Package) -> list[str]:
    """The linked folders that only one package has, or that lead to another place."""
    found = base.links.keys() | head.links.keys()
    return sorted(each for each in found if base.links.get(each) != head.links.get(each))
