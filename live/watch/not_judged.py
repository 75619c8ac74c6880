"""The invariants that no watcher judges, with the reason in a sentence.

The summary and docs/watched.md show these sentences."""

from kvproof.invariants.registry import INVARIANTS

NOT_JUDGED = {
    "drafter_holds_its_key": (
        "Which token the layers of a drafter have used after a block is not in the scheduler's "
        "outputs."
    ),
    "every_request_can_finish": (
        "It asks what can still happen, and a watcher sees only what happens."
    ),
    "nothing_kept_for_nobody": "It compares P with D, and a watcher sees one engine.",
    "offered_tokens_are_loaded": "It compares P with D, and a watcher sees one engine.",
    "paired_lists_are_equal": (
        "The worker's connector pairs the blocks of P and D, and a watcher looks at the scheduler."
    ),
    "paired_offsets_are_equal": (
        "The worker's connector pairs the blocks of P and D, and a watcher looks at the scheduler."
    ),
    "prefill_and_decode_agree": "It compares P with D, and a watcher sees one engine.",
    "room_is_used": (
        "A step may pass over a request for reasons that the invariant does not know, such as "
        "adapters, encoder inputs and the slots of a drafter."
    ),
}

JUDGED = tuple(name for name in INVARIANTS if name not in NOT_JUDGED)
"""The invariants that a watcher judges, if it has something to judge: the gravest first."""
