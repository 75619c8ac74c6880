"""The installed vLLM whose compiled parts serve trees that have none."""

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from kvproof.live.availability import ORIGIN
from kvproof.live.trees.files import COMPILED


def wheel() -> Path | None:
    """The package of the first vLLM on the path that has compiled parts and is no mirror; None
    where there is none."""
    return next((package for package in _packages() if _is_built(package)), None)


def _packages() -> Iterator[Path]:
    """The packages that this environment has: those on the path, and those of editable installs,
    which have a finder each."""
    for folder in sys.path:
        spec = PathFinder.find_spec("vllm", [folder])
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent
    for finder in sys.meta_path:
        spec = None if finder is PathFinder else finder.find_spec("vllm", None)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent


def _is_built(package: Path) -> bool:
    mirror = (package.parent.parent / ORIGIN).is_file()
    return not mirror and any(path.name.endswith(COMPILED) for path in package.iterdir())
