"""The folder of records and of runs."""

import os
from pathlib import Path

VARIABLE = "KVPROOF_DIR"
FOLDER = "kvproof-records"
"""In the working folder, where `KVPROOF_DIR` names no other."""


def records() -> Path:
    """The folder."""
    return Path(os.environ.get(VARIABLE) or FOLDER)
