"""A part of a session ends among accepted drafts, which count as computed tokens of the next."""

from collections.abc import Iterator

from tests.engine.findings.shown import SESSIONS, Engines, Seen, Shown
from tests.engine.workloads import tokens

FIRST, NEXT = tokens(1, 30), tokens(2, 5)
SAME_MODEL = {"method": "draft_model", "model": "full", "num_speculative_tokens": 3}
"""A drafter whose drafts are all accepted."""


def look(engines: Engines) -> Iterator[Seen]:
    """The second part of a session, of five tokens and of two."""
    engine = engines["E"]
    kept = engine.ask(FIRST, 2).tokens[:1]
    for length in (5, 2):
        right = engine.ask([*FIRST, *kept, *NEXT[:length]], 4).tokens
        assert engine.reset()
        name = f"session{length}"
        engine.inside(f"{SESSIONS}:part", name, FIRST, 2)
        assert engine.inside(f"{SESSIONS}:steps", 5)[name][:1] == kept
        engine.inside(f"{SESSIONS}:part", name, NEXT[:length], 4)
        answer = engine.process.take(["call", f"{SESSIONS}:steps", 10])
        got = answer.error or answer.results[0].get(name)
        yield Seen(f"tokens of a second part of {length}", got, right)
        if answer.error is None:
            engine.inside(f"{SESSIONS}:end", name)


SHOWN = Shown(
    look,
    {"E": ("full", {"speculative_config": SAME_MODEL})},
    named=("engine_survives",),
)
