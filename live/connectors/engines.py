"""The engines that a plan is played on: mostly one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvproof.live.connectors.engine import DrivenEngine
from kvproof.live.fakes.clock import LEASE_S, Clock
from kvproof.model.facts.connectors import Fact
from kvproof.model.plans.connector import Another, ConnectorPlan, SubmitRequest, Who

REPLICAS = 2

IDLE_STEPS_MAX = 50
"""The number of steps without any change after which the engines count as making no progress."""

SERVED_STEPS_MAX = LEASE_S // 2 + 5
"""Steps without any change and without any request after which the engines have nothing to do but
to serve others: what one keeps for another has ended by then. A step of each of two takes two
seconds."""

DRAIN_STEPS_MAX = 1_000
"""The number of steps after which engines count as stepping without end: a plan has fewer
tokens."""


class Engines:
    """The engines of one plan. Requests go to each in turn, an abort to the engine that has the
    request, and each other action to all. Engines that are `gone` were shut down, and another
    engine took the place of each."""

    def __init__(self, clock: Clock, engines: Sequence[DrivenEngine]) -> None:
        self.engines = list(engines)
        self.gone: list[DrivenEngine] = []
        self.clock, self.arrived = clock, 0

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request to the engine whose turn it is."""
        self.engines[self.arrived % len(self.engines)].submit(name, arrives)
        self.arrived += 1

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
        if who == "store" or len(self._all) > 1:
            self.loses()

    def drain(self) -> None:
        """Run the engines, without new requests, until none has work or one is dead, or until
        nothing changes any more. Blocks and reports that they still owe then become facts. Where a
        loop stands, the requests that wait for it without end, on other engines, become facts
        before it goes on."""
        if any(each.stands for each in self.engines):
            self._run_on()
            for each in self.engines:
                each.go_on()
        alone = self._run_on()
        if alone is not None and not self._wait_for_end_of_pause():
            for each in self.engines:
                each.note_owed(alone * each.has_work)

    def _run_on(self) -> int | None:
        """Run the engines until none has work or nothing changes any more. Returns the number of
        the last steps in which no request was left, or None where an engine is dead or a request is
        left, which becomes a fact."""
        idle, before, taken, alone = 0, None, 0, 0
        while any(each.has_work for each in self.engines):
            if any(each.dead for each in self.engines):
                return None
            self.step()
            now = [each.progress() for each in self.engines]
            idle, before = (idle + 1, before) if now == before else (0, now)
            if self.clock.stands:
                idle = 0  # the threads behind the connector go on, and no request waits without end
            taken += 1
            none_left = not any(
                e.scheduler.requests or e.in_flight or e.inbox for e in self.engines
            )
            alone = (alone + 1) * none_left
            if idle > SERVED_STEPS_MAX and none_left:
                break  # they go round for what another engine may ask
            if taken > DRAIN_STEPS_MAX and none_left:
                break  # what it owes is noted below, for there is nobody who waits
            if idle > IDLE_STEPS_MAX or taken > DRAIN_STEPS_MAX:
                steps, endless = (taken, True) if idle <= IDLE_STEPS_MAX else (idle, False)
                for each in self.engines:
                    if not (each.stands or self._wait_for_end_of_pause()):
                        each.note_waiting(steps, endless, IDLE_STEPS_MAX)
                return None
        return alone

    def _wait_for_end_of_pause(self) -> bool:
        """Whether requests may wait for the end of a pause; of several engines, also for another
        one's."""
        alone = len(self.engines) == 1
        paused = [each for each in self.engines if each.paused and not (alone and each.must_go_on)]
        return bool(paused and self.running)

    def restart(self, another: Another = "") -> None:
        """Start an engine again that is alone; by default, none of several is."""
        if len(self.engines) == 1:
            self.engines[0].restart(another)

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
        """The counts of all engines, also those of 0."""
        total: Counter[str] = Counter()
        for engine in self._all:
            total.update(engine.counts)
        return total

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
        """What happened of which there is no fact, by its name, and how often."""
        return sum((engine.owners.counted for engine in self._all), Counter())

    @property
    def running(self) -> list[str]:
        """The requests that have not ended."""
        return [name for engine in self.engines for name in engine.running]

    @property
    def standing(self) -> list[tuple[str, str, str, bool]]:
        """The engine, name and status of each request, and whether it has blocks."""
        return [
            (engine.cfg.name, name, request.status.name, any(engine.owners.tables(name)))
            for engine in self.engines
            for name, request in engine.scheduler.requests.items()
        ]


def replicas(plan: ConnectorPlan, connector: Mapping[str, Any], clock: Clock) -> Engines:
    """The engines of data parallelism on one machine, as vLLM starts them for a model without
    experts: they share the name of the instance, and each has a number. They may share the memory
    behind the connector."""
    settings = [
        {**connector, "engine_id": f"{connector['engine_id']}_dp{n}"} for n in range(REPLICAS)
    ]
    return Engines(
        clock,
        [DrivenEngine(plan, s, clock, paired=True, replica=n) for n, s in enumerate(settings)],
    )
