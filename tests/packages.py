"""Small packages with the name of vLLM, for tests that read source and import nothing."""

from collections.abc import Mapping
from pathlib import Path

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
