"""The limits of each number in a cluster. The error states the limits."""

from collections.abc import Sequence

from kvproof.model.errors import UsageError, unknown

LIMITS = {
    "block_size": 4096,
    "num_blocks": 100_000,
    "chunk_tokens": 1_000_000,
    "window": 1_000_000,
    "physical_per_logical": 64,
    "retention": 1_000_000,
    "max_requests": 100_000,
    "priority": 1_000,
    "steps_in_flight": 2,
    "drafts": 4,
    "match_unit": 4096,
    "hash_lookahead_tokens": 1,
    "prompt tokens": 10_000,
    "max_tokens": 10_000,
}


def within(what: str, value: int, lowest: int, limit: str) -> None:
    """Raises UsageError where a number is not a whole number, or is outside its limits."""
    highest = LIMITS[limit]
    if not isinstance(value, int) or not lowest <= value <= highest:
        raise UsageError(
            f"{what} is {value!r}, outside {lowest} to {highest}. "
            f"Use a whole number from {lowest} to {highest}."
        )


def one_of(what: str, value: str, known: Sequence[str]) -> None:
    """Raises UsageError where a value is unknown."""
    if value not in known:
        raise unknown(what, value, known)
