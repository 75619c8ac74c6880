"""Several engines behind the interface of one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvproof.live.connectors.engine import DrivenEngine, drained
from kvproof.live.fakes.clock import Clock
from kvproof.model.facts.connectors import Fact
from kvproof.model.plans.connector import Another, ConnectorPlan, SubmitRequest, Who

REPLICAS = 2


class SeveralEngines:
    """Engines of one plan. Each action applies to all engines; an abort applies to the engine that
    has the request. Engines that are `gone` were shut down, and another engine took the place of
    each."""

    def __init__(self, plan: ConnectorPlan, clock: Clock, engines: Sequence[DrivenEngine]) -> None:
        self.engines = list(engines)
        self.gone: list[DrivenEngine] = []
        self.cfg, self.clock, self.arrived = plan.engine, clock, 0

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request to one of the engines."""
        raise NotImplementedError

    def _between(self) -> None:
        """Do what is to be done between the turns of two engines; by default nothing."""

    @property
    def _all(self) -> list[DrivenEngine]:
        return [*self.gone, *self.engines]

    def _each(self, does: Callable[[DrivenEngine], object]) -> None:
        for engine in self.engines:
            does(engine)
            self._between()

    def step(self) -> None:
        """Run the loop of each engine once."""
        self._each(DrivenEngine.step)

    def abort(self, name: str) -> None:
        """Abort a request, as its client disconnects."""
        next(engine for engine in self.engines if name in engine.running).abort(name)
        self._between()

    def reset(self, running: bool = False, connector: bool = False) -> None:
        """Reset the prefix caches."""
        self._each(lambda engine: engine.reset(running, connector))

    def pause(self, new: bool) -> None:
        """Pause the engines."""
        self._each(lambda engine: engine.pause(new))

    def resume(self) -> None:
        """End a pause."""
        self._each(DrivenEngine.resume)

    def stand(self, who: Who, steps: int) -> None:
        """Let the loop of one engine, or the threads behind the connectors, stand for so many
        steps. What waits for it may fail."""
        self.engines[(who == "second") % len(self.engines)].stand(who, steps)
        self.loses()

    def drain(self) -> None:
        """Run all engines, without new requests, until none has work or nothing changes any
        more."""
        drained(self.step, self.engines)

    def restart(self, another: Another = "") -> None:
        """Do nothing: by default no engine is started again."""

    def loses(self) -> None:
        """Let the memory behind the connector fail."""
        self._each(DrivenEngine.loses)

    def take_facts(self) -> list[Fact]:
        """The facts of all engines since the last call."""
        return [fact for engine in self._all for fact in engine.take_facts()]

    def shown(self) -> list[object]:
        """The same as `DrivenEngine.shown`, of all engines."""
        return [each for engine in self._all for each in engine.shown()]

    @property
    def counts(self) -> Counter[str]:
        """The counts of all engines."""
        return sum((engine.counts for engine in self._all), Counter())

    def end(self) -> None:
        """Shut the engines down."""
        self._each(DrivenEngine.end)

    def close(self) -> None:
        """Free the resources that the engines still have."""
        self._each(DrivenEngine.close)

    @property
    def dead(self) -> bool:
        """Whether an engine has died."""
        return any(engine.dead for engine in self._all)

    @property
    def steps(self) -> int:
        """The number of steps of all workers."""
        return sum(engine.steps for engine in self._all)

    @property
    def counted(self) -> Counter[str]:
        """The same as `DrivenEngine.counted`, for all engines."""
        return sum((engine.counted for engine in self._all), Counter())

    @property
    def running(self) -> list[str]:
        """The requests that have not ended."""
        return [name for engine in self.engines for name in engine.running]

    @property
    def standing(self) -> list[tuple[str, str, str, bool]]:
        """The same as `DrivenEngine.standing`, for all engines."""
        return [each for engine in self.engines for each in engine.standing]


class EngineReplicas(SeveralEngines):
    """The engines of data parallelism on one machine, as vLLM starts them for a model without
    experts: they share the name of the instance, and each has a number. Requests go to each in
    turn. They may share the memory behind the connector."""

    def __init__(self, plan: ConnectorPlan, connector: Mapping[str, Any], clock: Clock) -> None:
        name = connector["engine_id"]
        engines = [
            DrivenEngine(
                plan, {**connector, "engine_id": f"{name}_dp{n}"}, clock, paired=True, replica=n
            )
            for n in range(REPLICAS)
        ]
        super().__init__(plan, clock, engines)

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request to the engine whose turn it is."""
        self.engines[self.arrived % REPLICAS].submit(name, arrives)
        self.arrived += 1
