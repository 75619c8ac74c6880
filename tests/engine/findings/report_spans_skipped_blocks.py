"""An event names one Mamba state and carries the tokens of several blocks."""

from collections.abc import Iterator

from tests.engine.findings.events import CONFIG
from tests.engine.findings.shown import EVENTS, Engines, Seen, Shown
from tests.engine.workloads import tokens


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt of three blocks and a token."""
    engine = engines["E"]
    engine.inside(f"{EVENTS}:listen")
    engine.ask(tokens(1, 3 * 32 + 1), 1)
    events = engine.inside(f"{EVENTS}:stored")
    carried = [(each["group"], each["tokens"]) for each in events]
    named = [(each["group"], each["hashes"] * each["block_size"]) for each in events]
    yield Seen("tokens in each event, by group", carried, named)


SHOWN = Shown(
    look,
    {"E": ("mamba", {"mamba_cache_mode": "align", "kv_events_config": CONFIG})},
    named=("events_carry_their_tokens",),
    of_patch=("events_carry_their_tokens",),
)
