"""After a rejection a request may need fewer blocks than it has. The align mode of vLLM asserted
that it never does (vllm#39562, vllm#43382)."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.rules import Rules
from kvproof.model.state import Engine


def dies_of_blocks_left(
    engine: Engine, group: config.Group, held: int, needed: int, count: int, rules: Rules
) -> tuple[Engine, tuple[int, ...]]:
    """In align mode no table may have more entries than it needs."""
    if group.aligned and held > needed:
        engine = engine._replace(dead=f"{held} blocks are held, and {needed} are needed")
    return pool.allocate(engine, group, held, needed, count, rules)


FAULT = Fault(
    name="fewer_blocks_than_held_dies",
    origin="vllm#43382",
    mistake="the engine dies where a request holds more blocks than its next step needs",
    replaces=("allocate", dies_of_blocks_left),
    breaks=("engine_survives",),
    cluster="hybrid-drafts-cut",
    trace_events=9,
    dies_in=("allocate_new_blocks",),
)
