"""A prompt is sent again after its answer, and P goes on from the state after the answer."""

from collections.abc import Iterator

from tests.engine.findings.held_list_ends_with_prompt import HELD, PROMPT, answered
from tests.engine.findings.shown import INSIDE, Engines, Seen, Shown


def look(engines: Engines) -> Iterator[Seen]:
    """The same prompt again, to P and then to a D that has nothing of it."""
    p, d = engines["P"], engines["D"]
    cold = p.ask(PROMPT).tokens
    assert p.reset()
    first = answered(p, d, PROMPT)
    again = p.ask(PROMPT, 1, transfer=first.transfer)
    d.take(["reset"])
    got = d.ask(PROMPT, transfer=again.transfer)
    yield Seen("tokens of D, the prompt sent again", got.tokens, cold)


SHOWN = Shown(
    look,
    {"P": ("mamba2", {}), "D": ("mamba2", {})},
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
    transfer=HELD,
    named=("state_read_is_state_at_computed",),
    beside=("counter_counts_only_cached",),
)
