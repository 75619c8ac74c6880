"""The end of a prompt is cached under a key that no lookup uses."""

from collections.abc import Iterator

from tests.engine.findings.events import CONFIG
from tests.engine.findings.shown import EVENTS, Engines, Seen, Shown
from tests.engine.workloads import tokens


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt of two blocks of full attention. The last hash before its end is inside a block."""
    engine = engines["E"]
    assert engine.inside("groups") == [["SlidingWindowSpec", 32], ["FullAttentionSpec", 64]]
    engine.inside(f"{EVENTS}:listen")
    engine.ask(tokens(1, 128), 1)
    events = engine.inside(f"{EVENTS}:stored")
    full = [each["tokens"] for each in events if each["group"] == 1]
    yield Seen("tokens of each event of full attention", full, [128])


SHOWN = Shown(
    look,
    {"E": ("unequal", {"kv_events_config": CONFIG})},
    named=("cached_key_can_be_hit",),
)
