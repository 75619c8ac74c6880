"""A finding's trace as a pytest file in vLLM's own terms. This folder writes text: only the files
in `fragments`, the parts of that text, name vLLM."""

from kvproof.live.reproducer.writing import Reproducer, write

__all__ = ["Reproducer", "write"]
