"""The common part of the kit's fake stores: they keep bytes under keys, forget them, and fail."""

from typing import ClassVar


class StoreClient:
    """A client of a store. Its next `failures` calls fail, with an exception if it `raises`. `made`
    has all clients of this episode, which share one store. A client `is_open` from its connection
    on until it is closed, if the store has connections. `closes` says whether it has a connection
    to close."""

    closes: ClassVar[bool] = True
    made: ClassVar[list["StoreClient"]] = []

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = self.made[0].kept if self.made else {}
        self.failures, self.raises, self.is_open = 0, False, False
        self.made.append(self)

    def forget(self) -> None:
        """Remove all values from the store."""
        self.kept.clear()

    def fails(self) -> bool:
        """Whether this call fails. Raises RuntimeError if failures are exceptions."""
        if not self.failures:
            return False
        self.failures -= 1
        if self.raises:
            raise RuntimeError("the store does not answer")
        return True
