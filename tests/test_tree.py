"""No code stands twice."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = sorted(path.name for path in (ROOT / "src" / "kvproof").iterdir() if path.is_symlink())

RUN_LINES = 10
"""The number of consecutive lines of code that may not occur twice in the packages."""


def files(*folders: str) -> list[Path]:
    """The Python files of these folders."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def code(text: str) -> Iterator[tuple[int, str]]:
    """The lines of code, numbered: no imports, docstrings, comments, blank lines."""
    passed_over: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if says or isinstance(node, ast.Import | ast.ImportFrom):
            passed_over.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#") and number not in passed_over:
            yield number, stripped


def repeated(texts: dict[str, str]) -> list[list[str]]:
    """The places at which each repeated run of lines begins."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, text in texts.items():
        lines = list(code(text))
        for first in range(len(lines) - RUN_LINES + 1):
            run = lines[first : first + RUN_LINES]
            places[tuple(line for _, line in run)].append(f"{name}:{run[0][0]}")
    return [where for where in places.values() if len(where) > 1]


def test_no_code_stands_twice() -> None:
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in files(*ROOMS)
    }
    assert repeated(texts) == []


def test_a_planted_copy_is_found() -> None:
    lines = [f"x{number} = {number}" for number in range(RUN_LINES)]
    copy = ["import os", "", *lines[:5], "    # the rest", *lines[5:], "y = 1"]
    assert repeated({"a": "\n".join(lines), "b": "\n".join(copy)}) == [["a:1", "b:3"]]
    assert repeated({"a": "\n".join(lines[1:]), "b": "\n".join(copy)}) == []
