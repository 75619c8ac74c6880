"""Several engines behind the calls of one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.engine import DrivenEngine, drained
from kvproof.connectors.plan import Another, ConnectorPlan, SubmitRequest
from kvproof.model.facts.connectors import Fact

REPLICAS = 2


class SeveralEngines:
    """Engines with one plan. What happens to them happens to each; a client that goes away is one
    of any. Those that are `gone` were shut down, and another took the place of each."""

    def __init__(self, plan: ConnectorPlan, clock: Clock, engines: Sequence[DrivenEngine]) -> None:
        self.engines = list(engines)
        self.gone: list[DrivenEngine] = []
        self.cfg, self.clock, self.arrived = plan.engine, clock, 0

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """A request arrives at one of them."""
        raise NotImplementedError

    def _between(self) -> None:
        """What happens between the turns of two engines."""

    @property
    def _all(self) -> list[DrivenEngine]:
        return [*self.gone, *self.engines]

    def _each(self, does: Callable[[DrivenEngine], object]) -> None:
        for engine in self.engines:
            does(engine)
            self._between()

    def step(self) -> None:
        """Each loop goes round once."""
        self._each(DrivenEngine.step)

    def deliver(self) -> None:
        """The outputs of the oldest steps in flight arrive."""
        self._each(DrivenEngine.deliver)

    def abort(self, name: str) -> None:
        """A client goes away."""
        next(engine for engine in self.engines if name in engine.running).abort(name)
        self._between()

    def reset(self, running: bool = False, connector: bool = False) -> None:
        """The prefix caches are emptied."""
        self._each(lambda engine: engine.reset(running, connector))

    def pause(self, new: bool) -> None:
        """The engines are paused."""
        self._each(lambda engine: engine.pause(new))

    def resume(self) -> None:
        """A pause ends."""
        self._each(DrivenEngine.resume)

    def drain(self) -> None:
        """Nothing more arrives: all run until none has anything to do, or nothing changes."""
        self.resume()
        drained(self, self.engines)

    def restart(self, another: Another = "") -> None:
        """None is started again."""

    def loses(self) -> None:
        """The memory behind the connector fails."""
        self._each(DrivenEngine.loses)

    def take_facts(self) -> list[Fact]:
        """What happened since the last call."""
        return [fact for engine in self._all for fact in engine.take_facts()]

    def end(self) -> None:
        """The engines are shut down."""
        self._each(DrivenEngine.end)

    def close(self) -> None:
        """Give back what they have."""
        self._each(DrivenEngine.close)

    @property
    def dead(self) -> bool:
        """Whether one has died."""
        return any(engine.dead for engine in self._all)

    @property
    def steps(self) -> int:
        """The steps of all workers."""
        return sum(engine.steps for engine in self._all)

    @property
    def judged(self) -> Counter[str]:
        """What was compared on each."""
        return sum((engine.judged for engine in self._all), Counter())

    @property
    def running(self) -> list[str]:
        """The requests that have not ended."""
        return [name for engine in self.engines for name in engine.running]

    @property
    def standing(self) -> list[tuple[str, str, str, bool]]:
        """See `DrivenEngine.standing`."""
        return [each for engine in self.engines for each in engine.standing]


class EngineReplicas(SeveralEngines):
    """Engines of data parallelism on one machine, as vLLM starts those of a model without experts:
    they have the name of the instance in common, and each has a number. Requests go to each in
    turn. What is behind the connector may be one thing for all."""

    def __init__(
        self,
        plan: ConnectorPlan,
        connector: Mapping[str, Any],
        clock: Clock,
        keeps_prompts: bool = False,  # noqa: ARG002 (what one has stored, another may be offered)
    ) -> None:
        name = connector["engine_id"]
        engines = [
            DrivenEngine(
                plan, {**connector, "engine_id": f"{name}_dp{n}"}, clock, paired=True, replica=n
            )
            for n in range(REPLICAS)
        ]
        super().__init__(plan, clock, engines)

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """A request arrives at the engine whose turn it is."""
        self.engines[self.arrived % REPLICAS].submit(name, arrives)
        self.arrived += 1
