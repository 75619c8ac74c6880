"""A prefill engine P and a decode engine D with one connector between them, behind the calls of one
engine: a request is computed by P, and D loads what P has."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.engine import DrivenEngine, drained
from kvproof.connectors.facts import Fact, MayFail
from kvproof.connectors.numbers import Numbers
from kvproof.connectors.plan import Another, ConnectorPlan, SubmitRequest
from kvproof.connectors.subject import LEASE_S

PORT = "VLLM_NIXL_SIDE_CHANNEL_PORT"
"""The variable that makes the engines of one machine different. Nothing listens there."""

TO_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
"""What a router sends to P beside a request (`kv_transfer_params`)."""

OF_P = "-0000000f"
"""The end of the name of a request on P. An engine puts such an end on the name that it gets."""


class EnginePair:
    """P and D. Both have the plan's engine, P on its own number of ranks. What happens to the pair
    happens to both; a client that goes away is one of either."""

    def __init__(
        self,
        plan: ConnectorPlan,
        connector: Mapping[str, Any],
        clock: Clock,
        keeps_prompts: bool = False,  # noqa: ARG002 (a pair keeps nothing)
    ) -> None:
        numbers = Numbers()

        def made(name: str, port: int) -> DrivenEngine:
            os.environ[PORT] = str(port)
            settings = {**connector, "engine_id": f"{connector['engine_id']}-{name}"}
            own = replace(plan, ranks=plan.prefill_ranks or plan.ranks) if name == "P" else plan
            return DrivenEngine(own, settings, clock, numbers=numbers)

        before = os.environ.get(PORT)
        try:
            self.prefill, self.decode = made("P", 1), made("D", 2)
        finally:
            os.environ.pop(PORT)
            if before is not None:
                os.environ[PORT] = before
        self.engines = self.prefill, self.decode
        self.cfg, self.clock, self.arrived = plan.engine, clock, 0
        self.sent: dict[str, SubmitRequest] = {}

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """A request arrives: it goes to P first."""
        self.arrived += 1
        self.sent[name + OF_P] = arrives
        first = SubmitRequest(arrives.family, arrives.tokens, 1, arrives.beside)
        self.prefill.submit(name + OF_P, first, dict(TO_DECODE))

    def _forward(self) -> None:
        """What P has computed goes to D."""
        for name, params in self.prefill.returned.items():
            self.decode.submit(name.removesuffix(OF_P), self.sent.pop(name), params)
        self.prefill.returned.clear()

    def _each(self, does: Callable[[DrivenEngine], object]) -> None:
        for engine in self.engines:
            does(engine)
            self._forward()

    def step(self) -> None:
        """Both loops go round once. From the end of the first lease on, P may have given up what it
        keeps for D."""
        if self.clock.now >= LEASE_S:
            self.prefill.facts.append(MayFail())
        self._each(DrivenEngine.step)

    def deliver(self) -> None:
        """The outputs of the oldest steps in flight arrive."""
        self._each(DrivenEngine.deliver)

    def abort(self, name: str) -> None:
        """A client goes away."""
        engine = self.prefill if name.endswith(OF_P) else self.decode
        engine.abort(name)
        self._forward()

    def reset(self, running: bool = False, connector: bool = False) -> None:
        """The prefix caches are emptied."""
        self._each(lambda engine: engine.reset(running, connector))

    def pause(self, new: bool) -> None:
        """D is paused."""
        self.decode.pause(new)

    def resume(self) -> None:
        """A pause ends."""
        self.decode.resume()

    def drain(self) -> None:
        """Nothing more arrives: both run until neither has anything to do, or nothing changes."""
        self.resume()
        drained(self, self.engines)

    def restart(self, another: Another = "") -> None:
        """Neither is started again: what is between them does not outlive them."""

    def loses(self) -> None:
        """The memory behind the connector fails."""

    def take_facts(self) -> list[Fact]:
        """What happened since the last call."""
        return [fact for engine in self.engines for fact in engine.take_facts()]

    def end(self) -> None:
        """Both engines are shut down."""
        self._each(DrivenEngine.end)

    def close(self) -> None:
        """Give back what they have."""
        self._each(DrivenEngine.close)

    @property
    def dead(self) -> bool:
        """Whether one has died."""
        return any(engine.dead for engine in self.engines)

    @property
    def steps(self) -> int:
        """The steps of both workers."""
        return sum(engine.steps for engine in self.engines)

    @property
    def judged(self) -> Counter[str]:
        """What was compared on both."""
        return sum((engine.judged for engine in self.engines), Counter())

    @property
    def running(self) -> list[str]:
        """The requests that have not ended."""
        return [name for engine in self.engines for name in engine.running]

    @property
    def standing(self) -> list[tuple[str, str, str, bool]]:
        """See `DrivenEngine.standing`."""
        return [each for engine in self.engines for each in engine.standing]
