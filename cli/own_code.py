"""This module makes a fingerprint of this kvproof. What it has computed and kept is of no use to
another."""

import functools
import hashlib
from pathlib import Path

import kvproof
from kvproof.live.known import traces

PACKAGES = ("model", "invariants", "strategies", "live", "cli")


@functools.cache
def fingerprint() -> str:
    """Return a hash of the version of this kvproof, of its code and of the traces of the
    findings."""
    root = Path(kvproof.__file__).parent
    digest = hashlib.sha256(kvproof.__version__.encode())
    files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
    for file in (*files, *traces.paths()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
