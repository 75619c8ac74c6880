"""Two engines that copy KV from each other: a tier of vLLM's offloading that is another engine
(`vllm/v1/kv_offload/tiering/p2p`)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.engine import DrivenEngine
from kvproof.connectors.pair import OF_P, one_of_two
from kvproof.connectors.plan import (
    DECODER,
    PREFILLED,
    Another,
    ConnectorPlan,
    SubmitRequest,
)
from kvproof.connectors.several import SeveralEngines

AWAY_S = 10
"""The time for which an engine that is started again is away, in seconds. By its end, the other
engine has seen the end of their connection."""


class Waiting(NamedTuple):
    """A request for an engine that waits until another engine has computed its prompt."""

    engine: int
    arrives: SubmitRequest
    params: dict[str, Any]


class EnginePeers(SeveralEngines):
    """Two equal engines. Requests go to each in turn; a request that asks for it gets its prompt
    from the other engine. While one engine is `away`, all requests go to the other."""

    def __init__(
        self,
        plan: ConnectorPlan,
        connector: Mapping[str, Any],
        clock: Clock,
        keeps_prompts: bool = False,  # noqa: ARG002 (what one has stored, the other is offered)
    ) -> None:
        self.parts = plan, connector, clock
        self.places = {number: self._made(number) for number in range(2)}
        super().__init__(plan, clock, tuple(self.places.values()))
        self.later: dict[str, Waiting] = {}
        self.away: int | None = None
        self.back = 0

    def _made(self, number: int) -> DrivenEngine:
        return one_of_two(f"{number}", number + 1, *self.parts)

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request to the engine whose turn it is."""
        own = self.arrived % 2
        if own == self.away:
            own = 1 - own
        self.arrived += 1
        params: dict[str, Any] = {
            role: {"kv_request_id": name, "remote_host": "localhost", "remote_port": 2 - own}
            for role, _ in arrives.asks
        }
        begins = Waiting(own, arrives, params)
        asks = dict(arrives.asks)
        if PREFILLED in asks and self.away is None:
            self._prefill(name, arrives, 1 - own)
            if asks[PREFILLED]:
                self.later[name + OF_P] = begins
                return
        self._begin(name, begins)

    def _prefill(self, name: str, arrives: SubmitRequest, engine: int) -> None:
        """Let an engine compute a prompt for the other engine."""
        self.places[engine].submit(
            name + OF_P, arrives.to_prefill, {DECODER: {"kv_request_id": name}}
        )

    def _begin(self, name: str, begins: Waiting) -> None:
        self.places[begins.engine].submit(name, begins.arrives, begins.params)

    def _between(self) -> None:
        """Submit the requests whose prompts the other engine has computed."""
        for name in [each for each in self.later if each not in self.running]:
            self._begin(name.removesuffix(OF_P), self.later.pop(name))

    def restart(self, another: Another = "") -> None:  # noqa: ARG002 (both serve one model)
        """Shut down the engine whose turn it is, if no request runs. The other engine continues,
        and a new engine takes the free place later."""
        if self.dead or self.running or self.later or self.away is not None:
            return
        self.away, self.back = self.arrived % 2, self.clock.now + AWAY_S
        ends = self.places.pop(self.away)
        self.gone.append(ends)
        self.engines.remove(ends)
        ends.end()

    def step(self) -> None:
        """Run each loop once."""
        if self.clock.now >= self.back:
            self._return()
        super().step()

    def _return(self) -> None:
        """Start the engine that is away."""
        if self.away is None or self.dead:
            return
        begins = self.places[self.away] = self._made(self.away)
        begins.owners.judged["engines that were started again"] += 1
        self.engines.append(begins)
        self.away = None

    def drain(self) -> None:
        """Run both engines, without new requests, until neither has work."""
        for _ in range(AWAY_S if self.away is not None else 0):
            self.step()
            self.deliver()
        self._return()
        super().drain()
