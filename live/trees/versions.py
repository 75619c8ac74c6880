"""The version of a source checkout, where a file in it has one."""

import re
from pathlib import Path

from kvproof.live.availability import UNKNOWN_VERSION
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_text

FIELD = re.compile(r"^Version: *(\S+)", re.MULTILINE)

FILES = {
    "PKG-INFO": FIELD,
    "vllm.egg-info/PKG-INFO": FIELD,
    "vllm/_version.py": re.compile(r"^__version__\b.*= *['\"]([^'\"]+)['\"]", re.MULTILINE),
}
"""The files with the version of a source distribution, and of a checkout that was built."""


def version_of_source(folder: Path) -> str:
    """The version of the sources in this folder, "unknown" where no file has it."""
    for name, pattern in FILES.items():
        try:
            found = pattern.search(read_text(folder / name, "file of vLLM", 1))
        except UsageError:
            continue
        if found:
            return found[1].split("+")[0]
    return UNKNOWN_VERSION
