"""One of two blocks with the same hash is evicted, and a router forgets the prefix."""

from collections.abc import Iterator

from tests.engine.findings.events import CONFIG
from tests.engine.findings.shown import EVENTS, Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(1, 64)


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt of two full blocks twice, then another one that takes a block."""
    engine = engines["E"]
    engine.inside(f"{EVENTS}:listen")
    for sent in (PROMPT, PROMPT, tokens(2, 64)):
        engine.ask(sent, 1)
    known = engine.inside(f"{EVENTS}:known")
    hit = engine.ask([*PROMPT, 3], 1).cached
    yield Seen("blocks that a router knows, and blocks hit", [known, hit // 32], [4, 2])


SHOWN = Shown(
    look,
    {
        "E": (
            "full",
            {"max_model_len": 96, "num_gpu_blocks_override": 5, "kv_events_config": CONFIG},
        )
    },
    named=("events_replay_to_the_cache",),
)
