"""The sources of an editable install of vLLM. Its folder of packages has metadata and a pointer."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_text

MAPPING = re.compile(r"^MAPPING\b[^=]*= *(\{.*\}) *$", re.MULTILINE)


def source(site: Path) -> Path | None:
    """The package `vllm` of an editable install in a folder of packages; None where there is none.
    Nothing of the folder is executed."""
    for folder in _pointed_at(site):
        if (folder / "__init__.py").is_file():
            return folder
    return None


def _pointed_at(site: Path) -> Iterator[Path]:
    """The folders that may be the package: of setuptools' finders, of paths, of pip's metadata."""
    for finder in sorted(site.glob("__editable__*_finder.py")):
        for line in MAPPING.findall(_text(finder)):
            yield from _mapped(line)
    for file in sorted(site.glob("*.pth")):
        for line in _text(file).splitlines():
            if line.strip() and not line.startswith(("import ", "import\t", "#")):
                yield site / line.strip() / "vllm"
    for file in sorted(site.glob("vllm*.dist-info/direct_url.json")):
        root = _folder_of(_text(file))
        if root is not None:
            yield from (root / "vllm", root / "src" / "vllm")


def _mapped(text: str) -> Iterator[Path]:
    try:
        mapping = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    if isinstance(mapping, dict) and isinstance(mapping.get("vllm"), str):
        yield Path(mapping["vllm"])


def _folder_of(text: str) -> Path | None:
    try:
        url = urlsplit(json.loads(text)["url"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _text(path: Path) -> str:
    try:
        return read_text(path, "pointer of an editable install", 1)
    except UsageError:
        return ""
