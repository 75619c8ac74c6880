"""Two engines with one connector between them.

Of `EnginePair`, P computes a request, and D loads what P has. Both of `PairAtOnce` get a request at
once, as the router of vLLM's MooncakeConnector sends it: D waits for what P computes. The two of
`EnginePeers` copy KV from each other: a tier of vLLM's offloading that is another engine
(`vllm/v1/kv_offload/tiering/p2p`).
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace

from kvproof.live.connectors.engine import DrivenEngine
from kvproof.live.connectors.engines import Engines
from kvproof.live.fakes.clock import LEASE_S, Clock
from kvproof.live.observer.kept import entries
from kvproof.live.options import TO_DECODE
from kvproof.model.facts.connectors import EngineGone, Fact, LoadEnded, MayFail
from kvproof.model.plans.connector import (
    DECODER,
    PREFILLED,
    Another,
    ConnectorPlan,
    SubmitRequest,
)

PORTS = (
    "VLLM_NIXL_SIDE_CHANNEL_PORT",
    "VLLM_P2P_SIDE_CHANNEL_PORT",
    "VLLM_MOONCAKE_BOOTSTRAP_PORT",
)
"""The environment variables by which the engines of one machine differ. No socket listens at these
ports."""

SEED = {"PYTHONHASHSEED": "0"}
"""The seed for hashes, which engines must share to compare hashes of blocks."""

OF_P = "-0000000f"
"""The end of the name of a request on P. An engine puts such an end on the name that it gets."""


def one_of_two(
    name: str,
    port: int,
    plan: ConnectorPlan,
    connector: Mapping[str, Any],
    clock: Clock,
    another: Another = "",
) -> DrivenEngine:
    """Make an engine of this name, with a port of its own."""
    settings = {**connector, "engine_id": f"{connector['engine_id']}-{name}"}
    with patch.dict(os.environ, {**SEED, **dict.fromkeys(PORTS, str(port))}):
        return DrivenEngine(plan, settings, clock, paired=True, another=another)


def alone(connector: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the connector between two engines, without the stores beside it."""
    inside = connector["kv_connector_extra_config"].get("connectors", ())
    between = (each for each in inside if each["kv_connector"] in BETWEEN)
    return {**connector, **next(between, {})}


BETWEEN = "NixlConnector", "NixlPushConnector", "MooncakeConnector"
"""The connectors that vLLM ships between P and D."""

OTHER_WAY = {"NixlConnector": "NixlPushConnector", "NixlPushConnector": "NixlConnector"}
"""The connector with which the other side of the pair copies."""

KNOWN_S = 3600
"""NIXL's `engine_ttl` in seconds, if the settings have none."""

START_S = 20
"""The time that the start of an engine takes, in seconds."""


def of_prefill(plan: ConnectorPlan) -> ConnectorPlan:
    """The plan of P: the plan of the pair, on P's own number of ranks."""
    other = plan.prefill_ranks
    ranks = replace(plan, ranks=other or plan.ranks, prefill_ranks=plan.ranks * (other > 0))
    return in_its_blocks(ranks, "P")


def in_its_blocks(plan: ConnectorPlan, name: str) -> ConnectorPlan:
    """The plan of P or D; the one whose name is `narrow` has the same number of tokens in narrower
    blocks. Kernel blocks keep their width."""
    if plan.narrow != name:
        return plan
    engine = plan.engine
    groups = tuple(replace(each, block_size=each.block_size // 2) for each in engine.groups)
    return replace(
        plan,
        engine=replace(engine, groups=groups, num_blocks=2 * engine.num_blocks),
        kernel_blocks=max(plan.kernel_blocks // 2, 1),
    )


class Replaced(NamedTuple):
    """An engine that has ended, its place in the pair, and the time of its end, in seconds."""

    name: str
    place: int
    ended: int


class EnginePair(Engines):
    """P and D. Both are engines of the plan, P on its own number of ranks. An engine that is
    started again keeps its address, but the connector sees another engine."""

    def __init__(self, plan: ConnectorPlan, connector: Mapping[str, Any], clock: Clock) -> None:
        computes, plan = of_prefill(plan), in_its_blocks(plan, "D")
        self.parts = connector, clock
        self.threads: list[frozenset[Callable[[], None]]] = [frozenset(), frozenset()]
        self.prefill = self._made(0, computes)
        self.decode = self._made(1, plan)
        super().__init__(clock, (self.prefill, self.decode))
        self.replaced: list[Replaced] = []
        self.begun = [0, 0]
        self.loaded, self.before = False, 0
        self.unlike = plan.unlike not in ("", "stores")
        self.has_stores = "connectors" in connector["kv_connector_extra_config"]
        extra = alone(connector)["kv_connector_extra_config"]
        self.lease_s = extra.get("kv_lease_duration", LEASE_S)
        self.known_s = extra.get("engine_ttl", KNOWN_S)
        self.sent: dict[str, SubmitRequest] = {}

    def _made(self, place: int, plan: ConnectorPlan, number: int = 0) -> DrivenEngine:
        """Make P or D, or the engine with this number that takes its place."""
        clock = self.parts[1]
        others = clock.threads
        name = f"{'PD'[place]}{number or ''}"
        connector, _ = self.parts
        another: Another = ""
        unlike = "" if place else plan.unlike
        if plan.unlike == "stores":
            unlike, connector = "", alone(connector) if place else connector
        if unlike == "transfer":
            connector = {**connector, "kv_connector": OTHER_WAY[connector["kv_connector"]]}
        elif unlike != "stores":
            another = unlike
        made = one_of_two(name, place + 1, plan, connector, clock, another)
        self.threads[place] = frozenset(clock.threads).difference(others)
        return made

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request, to P first."""
        self.arrived += 1
        self.sent[name + OF_P] = arrives
        self.prefill.submit(name + OF_P, arrives.to_prefill, dict(TO_DECODE))

    def _between(self) -> None:
        """Send the requests that P has computed to D."""
        for name, params in self.prefill.returned.items():
            self.decode.submit(name.removesuffix(OF_P), self.sent.pop(name), params)
        self.prefill.returned.clear()

    def step(self) -> None:
        """Run both loops once. From the end of the first lease on, P may have given up the blocks
        that it keeps for D. While an engine is started again, it keeps nothing. Where P and D do
        not fit together, each load may fail."""
        if self.unlike or self.clock.now >= max(self.begun) + self.lease_s:
            for each in self.engines:
                each.facts.append(MayFail())
        super().step()

    def restart(self, another: Another = "") -> None:  # noqa: ARG002 (both serve one model)
        """Shut one engine down, P and D in turn, if no request runs, and start another one at its
        address. The other engine continues."""
        if self.dead or self.running or any(each.in_flight for each in self.engines):
            return
        place = self.arrived % 2
        ends = self.engines[place]
        ends.end()
        self.clock.stop(self.threads[place])
        self.gone.append(ends)
        self.replaced.append(Replaced(ends.connector["engine_id"], place, self.clock.now))
        self.loaded = False
        self.clock.now += START_S
        self.begun[place] = self.clock.now
        begins = self._made(place, ends.plan, len(self.gone))
        begins.owners.counted["engines that were started again"] += 1
        self.engines[place] = begins
        self.prefill, self.decode = self.engines
        self.before = len(self.decode.facts)

    def take_facts(self) -> list[Fact]:
        """The facts of both engines since the last call."""
        self._look_at_loads()
        self.before = 0
        return super().take_facts()

    def end(self) -> None:
        """Shut both engines down."""
        self._look_at_loads()
        if not self.dead:
            self._note_gone()
        super().end()

    def _look_at_loads(self) -> None:
        ended = (isinstance(fact, LoadEnded) for fact in self.decode.facts[self.before :])
        self.loaded = self.loaded or any(ended)

    def _note_gone(self) -> None:
        """Record for each engine that is gone in which containers of vLLM the other side still
        keeps its name."""
        for engine, place in zip(self.engines, (1, 0), strict=True):
            gone = [each for each in self.replaced if each.place == place]
            parts = engine.scheduler.connector, *(worker.connector for worker in engine.workers)
            known = [found for part in parts if gone for found in entries(part).items()]
            engine.facts.extend(
                EngineGone(
                    self.begun[place] - each.ended,
                    self.known_s,
                    self.loaded,
                    tuple(where for where, held in known if each.name in held),
                )
                for each in gone
            )

    def pause(self, new: bool) -> None:
        """Pause D."""
        self.decode.pause(new)

    def resume(self) -> None:
        """End a pause."""
        self.decode.resume()

    def loses(self) -> None:
        """Let the store beside the connector fail, if there is one."""
        if self.has_stores:
            self._each(DrivenEngine.loses)


FROM_PREFILL = {"do_remote_prefill": True, "do_remote_decode": False}
"""The `kv_transfer_params` that the router sends to D with a request."""


class PairAtOnce(EnginePair):
    """P and D, which get a request at the same time. If the client disconnects from D, the router
    does not abort the request on P."""

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request to both engines."""
        self.arrived += 1
        both = {"transfer_id": name}
        self.prefill.submit(name + OF_P, arrives.to_prefill, {**TO_DECODE, **both})
        where = {
            "remote_engine_id": self.prefill.connector["engine_id"],
            "remote_bootstrap_addr": "http://localhost:1",
        }
        self.decode.submit(name, arrives, {**FROM_PREFILL, **both, **where})

    def _between(self) -> None:
        """Do nothing: P sends nothing to the router."""

    def abort(self, name: str) -> None:
        """Abort a request, as its client disconnects. If P's request is aborted, no load of D can
        succeed."""
        if name in self.prefill.running:
            self.loses()
        super().abort(name)

    def loses(self) -> None:
        """Let the network fail."""
        self._each(DrivenEngine.loses)


AWAY_S = 10
"""The time for which an engine that is started again is away, in seconds. By its end, the other
engine has seen the end of their connection."""


class Waiting(NamedTuple):
    """A request for an engine that waits until another engine has computed its prompt."""

    engine: int
    arrives: SubmitRequest
    params: dict[str, Any]


class EnginePeers(Engines):
    """Two equal engines. Requests go to each in turn; a request that asks for it gets its prompt
    from the other engine. While one engine is `away`, all requests go to the other."""

    def __init__(self, plan: ConnectorPlan, connector: Mapping[str, Any], clock: Clock) -> None:
        self.parts = plan, connector, clock
        self.places = {number: self._made(number) for number in range(2)}
        super().__init__(clock, tuple(self.places.values()))
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
        begins.owners.counted["engines that were started again"] += 1
        self.engines.append(begins)
        self.away = None

    def drain(self) -> None:
        """Run both engines, without new requests, until neither has work."""
        for _ in range(AWAY_S if self.away is not None else 0):
            self.step()
        self._return()
        super().drain()
