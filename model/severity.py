"""How grave it is that something does not hold: what a user of the engine would feel."""

from enum import IntEnum


class Severity(IntEnum):
    """From the gravest on; a smaller number is graver."""

    WRONG_TOKENS = 1
    CRASH = 2
    HANG = 3
    LEAK = 4
    LOST_PERFORMANCE = 5
    BOOKKEEPING = 6

    @property
    def words(self) -> str:
        """As it is printed."""
        return self.name.lower().replace("_", " ")
