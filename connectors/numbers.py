"""The numbers that stand for prefixes in the memory of a KV cache."""

from zlib import crc32

NUMBERS_MAX = 2**24
"""A float32 holds each whole number below this one exactly."""


class Numbers:
    """One number for each pair of a layer and a prefix, from 1 on; 0 is memory that no step wrote.

    The number follows from the pair: it is the same in each episode and in each process, so that a
    copy keeps its meaning wherever it goes, also in a store that outlives its engine. Only where
    two pairs would have one number, the second one that comes has the next one.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._homes: dict[int, tuple[str, str]] = {}

    def of(self, layer: str, prefix: str) -> int:
        """The number of this prefix in this layer."""
        key = layer, prefix
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._free(crc32("\n".join(key).encode()))
            self._homes[number] = key
        return number

    def _free(self, wanted: int) -> int:
        """The first number from `wanted` on that is not used yet."""
        if len(self._homes) == NUMBERS_MAX - 1:
            raise OverflowError(f"a process has more than {NUMBERS_MAX} prefixes")
        number = wanted % (NUMBERS_MAX - 1) + 1
        while number in self._homes:
            number = number % (NUMBERS_MAX - 1) + 1
        return number

    def home(self, number: float) -> tuple[str, str]:
        """The layer and the prefix of a number; empty texts for content that no step computed."""
        whole = int(number) if number == number and abs(number) < NUMBERS_MAX else 0
        return self._homes.get(whole, ("", "")) if whole == number else ("", "")

    def prefix(self, layer: str, number: float) -> str | None:
        """The prefix of a number in a layer. None for content that no step computed for this layer:
        empty memory, half a copy, or the content of another layer."""
        of_layer, prefix = self.home(number)
        return prefix if of_layer == layer else None


NUMBERS = Numbers()
"""The numbers of all engines and stores of this process."""
