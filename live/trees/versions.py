"""The version of a source checkout, where a file in it says one."""

import re
from pathlib import Path

from kvproof.live.availability import UNKNOWN_VERSION
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_text

SAID_IN = {
    "PKG-INFO": re.compile(r"^Version: *(\S+)", re.MULTILINE),
    "vllm/_version.py": re.compile(r"^__version__\b.*= *['\"]([^'\"]+)['\"]", re.MULTILINE),
}
"""Where a source distribution, and a checkout that was built, say their version."""


def version_of_source(folder: Path) -> str:
    """The version of the sources in this folder, "unknown" where none is said."""
    for name, pattern in SAID_IN.items():
        try:
            found = pattern.search(read_text(folder / name, "file of vLLM", 1))
        except UsageError:
            continue
        if found:
            return found[1].split("+")[0]
    return UNKNOWN_VERSION
