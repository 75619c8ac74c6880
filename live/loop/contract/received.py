"""The fact that the rules about masks begin with: a client received one more token."""

from kvproof.model.because import Reason, reason


def received(before: int) -> Reason:
    """The token after `before` others that follow the reasoning."""
    return reason(
        "received",
        "the client of {request} received {before} tokens and then one more, not counting "
        "reasoning",
        before=before,
    )
