"""The numbers that stand for prefixes in the memory of a KV cache."""

NUMBERS_MAX = 2**24
"""A float32 holds each whole number below this one exactly."""


class Numbers:
    """One number for each pair of a layer and a prefix, from 1 on; 0 is memory that no step wrote.

    All engines and stores of a run share them, so a copy keeps its meaning wherever it goes.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._prefixes: list[tuple[str, str]] = [("", "")]

    def of(self, layer: str, prefix: str) -> int:
        """The number of this prefix in this layer."""
        key = layer, prefix
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._prefixes)
            if number >= NUMBERS_MAX:
                raise OverflowError(f"a run has more than {NUMBERS_MAX} prefixes")
            self._prefixes.append(key)
        return number

    def home(self, number: float) -> tuple[str, str]:
        """The layer and the prefix of a number; empty texts for content that no step computed."""
        whole = int(number) if number == number and abs(number) < NUMBERS_MAX else 0
        known = whole == number and 0 < whole < len(self._prefixes)
        return self._prefixes[whole] if known else ("", "")

    def prefix(self, layer: str, number: float) -> str | None:
        """The prefix of a number in a layer. None for content that no step computed for this layer:
        empty memory, half a copy, or the content of another layer."""
        of_layer, prefix = self.home(number)
        return prefix if of_layer == layer else None
