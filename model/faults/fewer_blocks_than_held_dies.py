"""After drafts were rejected, a request may need fewer blocks than it holds. vLLM's align mode
asserted that this never happens (vllm#39562, vllm#43382)."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.rules import Rules
from kvproof.model.state import Engine


def dies_of_blocks_left(
    engine: Engine, group: config.Group, held: int, needed: int, count: int, rules: Rules
) -> tuple[Engine, tuple[int, ...]]:
    """In align mode, stop the engine if a table has more entries than it needs."""
    if group.aligned and held > needed:
        engine = engine._replace(dead=f"the request holds {held} blocks and needs {needed}")
    return pool.allocate(engine, group, held, needed, count, rules)


FAULT = Fault(
    name="fewer_blocks_than_held_dies",
    origin="vllm#43382",
    mistake="the engine dies if a request holds more blocks than its next step needs",
    replaces=("allocate", dies_of_blocks_left),
    breaks=("engine_survives",),
    cluster="hybrid-drafts-cut",
    trace_events=9,
    dies_in=("allocate_new_blocks",),
)
