"""Reasons made by hand."""

from kvproof.model.because import Reasons, reason


def said(*sentences: str) -> Reasons:
    """Reasons with these words. Each has a kind of its own."""
    return tuple(reason(each, each) for each in sentences)
