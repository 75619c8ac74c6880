"""The severity of a finding: what a user would notice."""

from enum import IntEnum


class Severity(IntEnum):
    """The severity levels, the most severe first. An invariant has the most severe consequence that
    its violation may have."""

    WRONG_TOKENS = 1
    """An answer is wrong, and no error is reported."""
    CRASH = 2
    """An engine or a worker dies, and every request on it fails."""
    HANG = 3
    """A request never ends."""
    LEAK = 4
    """Blocks stay allocated that no request uses."""
    LOST_PERFORMANCE = 5
    """Cached or loaded KV is not used: an answer is correct but late."""
    WRONG_REPORT = 6
    """What an engine says of itself is wrong: statistics, an end, the answer to a call."""
    BOOKKEEPING = 7
    """A counter of the engine is wrong; by itself this has no effect on users."""

    @property
    def words(self) -> str:
        """The name of the level in a report: "wrong tokens"."""
        return self.name.lower().replace("_", " ")

    @property
    def option(self) -> str:
        """The name of the level on a command line: "wrong-tokens"."""
        return self.words.replace(" ", "-")


MEANINGS = {
    Severity.WRONG_TOKENS: "wrong answers without an error",
    Severity.CRASH: "the death of an engine or a worker, and of every request on it",
    Severity.HANG: "requests that never end",
    Severity.LEAK: "blocks that stay allocated and that no request uses",
    Severity.LOST_PERFORMANCE: "late answers, because KV is computed again",
    Severity.WRONG_REPORT: "wrong statistics, ends of requests or results of calls",
    Severity.BOOKKEEPING: "a wrong counter, which users do not notice by itself",
}
"""What a check of a severity guards against: the most severe consequence that a violation may have.
A run that violates the check need not show it."""

FAIL_ON = Severity.LEAK
"""A finding of this severity or a higher one fails a run, unless the user sets another severity."""
