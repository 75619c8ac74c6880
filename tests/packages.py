"""Small packages with the name of vLLM, for tests that read source and import nothing."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from kvproof.gate.source.changes import Changes, changed

CORE = "v1/core/part.py"
"""A file of the accounting."""


def package(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write a package, and give its folder."""
    root = folder / "vllm"
    root.mkdir(parents=True)
    (root / "__init__.py").write_text("")
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def between(tmp_path: Path, base: Mapping[str, str], head: Mapping[str, str]) -> Changes:
    """What changes between two packages."""
    return changed(package(tmp_path / "base", base), package(tmp_path / "head", head))


def names(tmp_path: Path, before: str, after: str) -> set[str]:
    """The changed functions of a file of the accounting."""
    texts = dedent(before), dedent(after)
    changes = between(tmp_path, {CORE: texts[0]}, {CORE: texts[1]})
    assert all(each.kind == "new" for each in changes.others)  # nothing of so few lines names it
    both = *changes.accounting, *changes.others
    assert all(each.file == CORE for each in both)
    assert all(each.line >= 1 for each in both)
    return {each.name for each in both}
