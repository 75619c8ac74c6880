"""The functions of generated files: read from `fragments` as text, and fitted to a run."""

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kvproof.live.reproducer.layout import WIDTH

FRAGMENTS = Path(__file__).parent / "fragments"
FILES = ("engines", "stores", "steps", "transfers", "looks", "observing")
"""The files, in the order in which a generated file has their functions."""

_MARK = re.compile(r"(?P<line>.*?)\s*#@ (?P<feature>\w+)(?:: (?P<instead>.*))?")


class Library(NamedTuple):
    """Definitions by name, in order, and the module of each name that they import."""

    definitions: Mapping[str, str]
    modules: Mapping[str, str]


@functools.cache
def library() -> Library:
    """All functions and classes, with their marks."""
    definitions: dict[str, str] = {}
    modules: dict[str, str] = {}
    for file in FILES:
        source = (FRAGMENTS / f"{file}.py").read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                definitions[node.name] = ast.get_source_segment(source, node) or ""
            elif isinstance(node, ast.Import):
                modules |= {alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("kvproof"):
                modules |= {alias.name: str(node.module) for alias in node.names}
    return Library(definitions, modules)


def fitted(source: str, features: Collection[str]) -> str:
    """A definition with the lines of these features."""
    return "\n".join(joined([*_lines(source, features)]))


def _lines(source: str, features: Collection[str]) -> Iterator[str]:
    for line in source.splitlines():
        marked = _MARK.fullmatch(line)
        if marked is None:
            yield line
            continue
        on, instead = marked["feature"] in features, marked["instead"]
        if on and instead is not None:
            yield line[: len(line) - len(line.lstrip())] + instead
        elif on or instead is not None:
            yield marked["line"]


def joined(lines: list[str]) -> list[str]:
    """The lines, where each list of arguments that fits in one line is in one line."""
    result: list[str] = []
    for line in lines:
        result.append(line)
        opened = _opened(result)
        if opened is None:
            continue
        inner = [one.strip() for one in result[opened + 1 : -1]]
        one = result[opened] + " ".join(inner).rstrip(",") + line.strip()
        if len(one) <= WIDTH and all(part.endswith(",") for part in inner):
            result[opened:] = [one]
    return result


def _opened(lines: Sequence[str]) -> int | None:
    """The line that opened the bracket which the last line closes, if all lines between them are
    one step deeper."""
    indent = len(lines[-1]) - len(lines[-1].lstrip())
    if not lines[-1].lstrip().startswith((")", "]", "}")):
        return None
    for index in range(len(lines) - 2, -1, -1):
        depth = len(lines[index]) - len(lines[index].lstrip())
        if depth == indent:
            return index if lines[index].endswith(("(", "[", "{")) else None
        if depth != indent + 4:
            return None
    return None


def used(source: str) -> set[str]:
    """The names that a piece of source uses."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def needed(body: Iterable[str], features: Collection[str]) -> dict[str, str]:
    """The definitions that these pieces of source use, directly or not, fitted, in order."""
    definitions = library().definitions
    open_names = {name for piece in body for name in used(piece)}
    found: dict[str, str] = {}
    while names := [n for n in definitions if n in open_names and n not in found]:
        for name in names:
            found[name] = fitted(definitions[name], features)
            open_names |= used(found[name])
    return {name: found[name] for name in definitions if name in found}
