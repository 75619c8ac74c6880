"""D's answer ends among accepted drafts, and P uses their KV for the next turn."""

from collections.abc import Iterator

from tests.engine.findings.held_list_ends_with_prompt import HELD, answered
from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import DRAFTS, tokens

PROMPT = tokens(7, 150)
NEXT = tokens(8, 60)


def look(engines: Engines) -> Iterator[Seen]:
    """The next turn, and a later plain request for it."""
    p, d = engines["P"], engines["D"]
    first = answered(p, d, PROMPT)
    assert first.transfer is not None
    yield Seen("tokens that D offers", first.transfer["remote_num_tokens"], 150 + 39)
    turn = [*PROMPT, *first.tokens, *NEXT]
    cold = p.ask(turn).tokens
    assert p.reset()
    again = p.ask(turn, 1, transfer=first.transfer)
    yield Seen("first token of the next turn", again.tokens, cold[:1])
    yield Seen("tokens of P, a later plain request", p.ask(turn).tokens, cold)


SHOWN = Shown(
    look,
    {"P": ("full", {}), "D": ("full", {"speculative_config": DRAFTS})},
    transfer=HELD,
    fresh=True,
)
