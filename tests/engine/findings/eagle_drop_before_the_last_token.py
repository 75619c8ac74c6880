"""A prompt of full blocks is sent again to an engine with an EAGLE drafter."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, Engines, Seen, Shown
from tests.engine.workloads import tokens

EAGLE = {"method": "eagle", "model": "full", "num_speculative_tokens": 1}


def look(engines: Engines) -> Iterator[Seen]:
    """The prompt twice, and one that is a token longer."""
    engine = engines["E"]
    for length, wrong in ((129, False), (128, True)):
        sent = tokens(length, length)
        first = engine.ask(sent)
        again = engine.ask(sent)
        yield Seen(f"hit tokens, prompt of {length}", again.cached, 96, wrong)
        yield Seen(f"tokens, prompt of {length}", again.tokens, first.tokens, wrong=False)


SHOWN = Shown(
    look,
    {"E": ("full", {"load_format": "dummy", "speculative_config": EAGLE})},
    before=(["call", f"{INSIDE}:make", "full"],),
    named=(
        "hit_is_the_longest",
        "repeated_prompt_hits",
    ),
)
