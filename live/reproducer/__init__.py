"""A finding's trace as a pytest file in vLLM's own terms. Only `template.py`, the text of it, names
vLLM."""

from kvproof.live.reproducer.writing import BothTrees, write

__all__ = ["BothTrees", "write"]
