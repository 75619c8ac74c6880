"""A session is preempted while the last token of its answer is computed."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, SESSIONS, Engines, Seen, Shown
from tests.engine.workloads import tokens

OTHER, FIRST, NEXT = tokens(1, 63), tokens(2, 8), tokens(3, 4)


def look(engines: Engines) -> Iterator[Seen]:
    """The second part of the session."""
    engine = engines["E"]
    kept = engine.ask(FIRST, 2).tokens[:1]
    right = engine.ask([*FIRST, *kept, *NEXT], 1).tokens
    assert engine.reset()
    engine.send("other", OTHER, 4)
    engine.inside(f"{SESSIONS}:part", "session", FIRST, 2)
    first = engine.inside(f"{SESSIONS}:steps", 20)
    assert first["session"][:1] == kept
    engine.inside(f"{SESSIONS}:part", "session", NEXT, 1)
    got = engine.inside(f"{SESSIONS}:steps", 50).get("session", [])
    yield Seen("tokens of the second part", got, right)


SHOWN = Shown(
    look,
    {"E": ("full", {"max_model_len": 96, "num_gpu_blocks_override": 4})},
    before=(["call", f"{INSIDE}:overlapping_steps"],),
    named=(
        "every_request_in_one_queue",
        "step_makes_progress",
        "truncated_at_most_once",
    ),
)
