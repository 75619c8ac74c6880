"""Two sessions hold all blocks, and each waits for one more."""

from collections.abc import Iterator

from tests.engine.findings.shown import SESSIONS, Engines, Seen, Shown
from tests.engine.workloads import tokens

FIRST = {"one": tokens(1, 96), "two": tokens(2, 96)}
NEXT = {"one": tokens(3, 32), "two": tokens(4, 32)}


def look(engines: Engines) -> Iterator[Seen]:
    """The second parts of both sessions. There is room for one of them."""
    engine = engines["E"]
    right = engine.ask(FIRST["one"] + NEXT["one"], 1).tokens
    assert engine.reset()
    for name, part in FIRST.items():
        engine.inside(f"{SESSIONS}:part", name, part, 1)
    assert set(engine.inside(f"{SESSIONS}:steps", 5)) == set(FIRST)
    for name, part in NEXT.items():
        engine.inside(f"{SESSIONS}:part", name, part, 1)
    got = engine.inside(f"{SESSIONS}:steps", 200)
    yield Seen("sessions that are answered, of two", list(got), ["one"])
    yield Seen("tokens of the second part", got.get("one"), right)


SHOWN = Shown(
    look,
    {"E": ("full", {"max_model_len": 192, "num_gpu_blocks_override": 7})},
    named=("step_makes_progress",),
    of_patch=("step_makes_progress", "worker_forgets_who_left"),
)
