"""How grave it is when an invariant does not hold: what a user would feel."""

from enum import IntEnum


class Severity(IntEnum):
    """The gravest first. An invariant has the gravest that its breach may lead to."""

    WRONG_TOKENS = 1
    """An answer is wrong, and nothing says so."""
    CRASH = 2
    """An engine or a worker dies, and every request on it."""
    HANG = 3
    """A request never ends."""
    LEAK = 4
    """Blocks are kept that serve nobody."""
    LOST_PERFORMANCE = 5
    """What is there is not used: an answer is right, and late."""
    BOOKKEEPING = 6
    """A number of the engine is off, and nobody feels it by itself."""

    @property
    def words(self) -> str:
        """As it is shown: "wrong tokens"."""
        return self.name.lower().replace("_", " ")

    @property
    def option(self) -> str:
        """As it is written on a command line: "wrong-tokens"."""
        return self.words.replace(" ", "-")


FAIL_ON = Severity.LEAK
"""From this severity on up a finding fails a run, unless the user says otherwise."""
