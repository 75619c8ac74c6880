"""What the stores of the kit have in common: they keep bytes under keys, forget, and fail."""

from typing import ClassVar


class StoreClient:
    """A client of a store. Its next `failures` calls fail, by an exception if it `raises`. `made`
    are the clients of this episode, which have one store. It `is_open` from its connection on until
    it is closed, where the store knows this. `closes` says whether there is a connection to end."""

    closes: ClassVar[bool] = True
    made: ClassVar[list["StoreClient"]] = []

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = self.made[0].kept if self.made else {}
        self.failures, self.raises, self.is_open = 0, False, False
        self.made.append(self)

    def forget(self) -> None:
        """Lose everything."""
        self.kept.clear()

    def fails(self) -> bool:
        """Whether this call fails. Raises RuntimeError if calls fail so."""
        if not self.failures:
            return False
        self.failures -= 1
        if self.raises:
            raise RuntimeError("the store does not answer")
        return True
