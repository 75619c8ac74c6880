"""Limits of every number in a cluster. The error says which."""

from kvproof.model.errors import UsageError

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
    "hash_lookahead_tokens": 1,
    "prompt tokens": 10_000,
    "max_tokens": 10_000,
}


def within(what: str, value: int, lowest: int, limit: str) -> None:
    """Raises UsageError where a number is no whole one, or outside its limits."""
    highest = LIMITS[limit]
    if not isinstance(value, int) or not lowest <= value <= highest:
        raise UsageError(
            f"{what} is {value!r}, outside {lowest} to {highest}. "
            f"Write a whole number from {lowest} to {highest}."
        )
