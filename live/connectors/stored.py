"""The store of an engine core: a connector of the kit, with the kit's workers and fakes. So clients
of an engine's loop meet a real connector, and real bytes."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvproof.live.connectors.judging import broken
from kvproof.live.connectors.observed import ObservedEngine
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.fakes import streams
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.replaced import device
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import UsageError
from kvproof.model.facts.connectors import Fact, Past
from kvproof.model.facts.startup import StartedGroup
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.plans.engine import EnginePlan


class Store:
    """A connector, its settings of `KVTransferConfig`, and the clock of its copies. What is behind
    it is empty when an engine starts: the engines of a plan are measured."""

    def __init__(self, subject: TestedConnector, folder: Path, clock: Clock) -> None:
        self.subject, self.folder, self.clock = subject, folder, clock
        self.settings: Mapping[str, Any] = {}

    def begin(self) -> None:
        """Begin a process for the next engine of a plan."""
        self.clock.begin_again()
        streams.begin()
        own = tempfile.mkdtemp(dir=self.folder)
        self.settings = self.subject.settings(Path(own))

    def observe(
        self, plan: EnginePlan, scheduler: Any, groups: tuple[StartedGroup, ...]
    ) -> ObservedEngine:
        """Make the workers of an engine that has started with these cache groups, and observe its
        connector from now on."""
        engine = EngineConfig(
            "E",
            tuple(map(_group, groups)),
            num_blocks=scheduler.kv_cache_config.num_blocks,
            chunk_tokens=plan.chunk_tokens,
            prefix_caching=plan.prefix_caching,
            steps_in_flight=1 + plan.overlaps,
        )
        observed = ObservedEngine(
            ConnectorPlan(engine, (), copies=plan.copies), self.clock, self.subject.keeps_prompts
        )
        observed.observe(scheduler)
        return observed

    def breaks(self, facts: Sequence[Fact], before: int) -> bool:
        """Whether facts break a check, of which the first `before` are known."""
        past = Past()
        for fact in facts[:before]:
            past.add(fact)
        return any(broken(facts[before:], past))


def _group(group: StartedGroup) -> Group:
    """A cache group as the kit has it. Plain layers have no others."""
    if group.kind == "mamba":
        return Group("mamba", group.block)
    return Group("window" if group.window else "full", group.block, window=group.window)


@contextmanager
def stored(plan: EnginePlan) -> Iterator[Store | None]:
    """Put the fakes of the device in place until the block ends, if the plan has a store. Raises
    UsageError where the kit does not drive it in one engine."""
    if not plan.store:
        yield None
        return
    alone = [n for n, each in SHIPPED.items() if each.subject.is_plain_store and not each.dummy]
    if plan.store not in alone or not plan.plain:
        why = f"An engine core is not driven with the store {plan.store!r} and these layers"
        what = "layers of full attention, windows or states, alike and of 4 bytes, on one worker"
        raise UsageError(f"{why}. Use {what}, without drafts, and one of: {', '.join(alone)}.")
    subject = SHIPPED[plan.store].subject
    clock = Clock(plan.copies, subject.by_block)
    with tempfile.TemporaryDirectory(prefix="kvproof-loop-") as folder, device(clock):
        try:
            yield Store(subject, Path(folder), clock)
        finally:
            clock.over = True
            clock.end()
