"""A symbolic worker: it carries out real `SchedulerOutput`s on symbolic memory.

It keeps its own block tables from what the scheduler sends, as a model runner does, and never
looks into the scheduler. What a step reads and writes is the model's `memory.run`: the semantics
of attention and of a state are the same for both machines.
"""

from collections.abc import Iterable
from typing import Any

from kvproof.live.store import Load
from kvproof.model import config, memory, state
from kvproof.model.state import Content, Table
from kvproof.model.step import Read


class Worker:
    """One engine's model runner, without a model."""

    def __init__(self, cfg: config.Engine) -> None:
        self.cfg = cfg
        self.memory: tuple[Content | None, ...] = (None,) * cfg.num_blocks
        self.tables: dict[str, tuple[Table, ...]] = {}

    def _update_tables(self, output: Any) -> None:
        for new in output.scheduled_new_reqs:
            self.tables[new.req_id] = tuple(tuple(ids) for ids in new.block_ids)
        cached = output.scheduled_cached_reqs
        for name, ids in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self.tables[name] = tuple(tuple(group) for group in ids)
            elif ids is not None:
                held = self.tables[name]
                self.tables[name] = tuple((*t, *new) for t, new in zip(held, ids, strict=True))

    def _copy_blocks(self, output: Any) -> None:
        copied = list(self.memory)
        for pair in output.kv_cache_block_copies or ():
            source, target = pair[0], pair[1]
            copied[target] = self.memory[source]
        self.memory = tuple(copied)

    def load(self, loads: Iterable[Load], requests: dict[str, state.Request]) -> None:
        """A store fills the blocks that its scheduler side was given, before the step runs."""
        engine = state.Engine(self.cfg.name, (), (), memory=self.memory)
        for name, tables, hit, external in loads:
            request = requests[name]._replace(tables=tables, hit=hit, external=external)
            engine = memory.load(self.cfg, engine, request)
        self.memory = engine.memory

    def execute(self, output: Any, requests: dict[str, state.Request]) -> tuple[Read, ...]:
        """Run one step. `requests` gives the tokens of each scheduled request."""
        self._update_tables(output)
        self._copy_blocks(output)
        batch = []
        for name, tokens in output.num_scheduled_tokens.items():
            batch.append((requests[name]._replace(tables=self.tables[name]), tokens))
        engine = state.Engine(self.cfg.name, (), (), memory=self.memory)
        engine, reads = memory.run(self.cfg, engine, batch)
        self.memory = engine.memory
        return reads
