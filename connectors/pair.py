"""A prefill engine P and a decode engine D with one connector between them, behind the calls of one
engine: a request is computed by P, and D loads what P has."""

import os
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.engine import DrivenEngine
from kvproof.connectors.facts import MayFail
from kvproof.connectors.numbers import Numbers
from kvproof.connectors.plan import Another, ConnectorPlan, SubmitRequest
from kvproof.connectors.several import SeveralEngines
from kvproof.connectors.subject import LEASE_S

PORTS = "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_P2P_SIDE_CHANNEL_PORT"
"""The variables that make the engines of one machine different. Nothing listens there."""

SEED = {"PYTHONHASHSEED": "0"}
"""Engines that compare hashes of blocks need a seed in common."""

TO_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
"""What a router sends to P beside a request (`kv_transfer_params`)."""

OF_P = "-0000000f"
"""The end of the name of a request on P. An engine puts such an end on the name that it gets."""


def one_of_two(
    name: str,
    port: int,
    plan: ConnectorPlan,
    connector: Mapping[str, Any],
    clock: Clock,
    numbers: Numbers,
) -> DrivenEngine:
    """An engine of this name, with a port of its own."""
    settings = {**connector, "engine_id": f"{connector['engine_id']}-{name}"}
    with patch.dict(os.environ, {**SEED, **dict.fromkeys(PORTS, str(port))}):
        return DrivenEngine(plan, settings, clock, numbers=numbers)


class EnginePair(SeveralEngines):
    """P and D. Both have the plan's engine, P on its own number of ranks. One that is started again
    has its address, and is another engine for the connector."""

    def __init__(
        self,
        plan: ConnectorPlan,
        connector: Mapping[str, Any],
        clock: Clock,
        keeps_prompts: bool = False,  # noqa: ARG002 (a pair keeps nothing)
    ) -> None:
        computes = replace(plan, ranks=plan.prefill_ranks or plan.ranks)
        self.parts = connector, clock, Numbers()
        self.threads: list[frozenset[Callable[[], None]]] = [frozenset(), frozenset()]
        self.prefill = self._made(0, computes)
        self.decode = self._made(1, plan)
        super().__init__(plan, clock, (self.prefill, self.decode))
        self.lease_s = connector["kv_connector_extra_config"].get("kv_lease_duration", LEASE_S)
        self.sent: dict[str, SubmitRequest] = {}

    def _made(self, place: int, plan: ConnectorPlan, number: int = 0) -> DrivenEngine:
        """P or D, or one that takes its place as the engine with this number."""
        clock = self.parts[1]
        others = clock.threads
        name = f"{'PD'[place]}{number or ''}"
        made = one_of_two(name, place + 1, plan, *self.parts)
        self.threads[place] = frozenset(clock.threads).difference(others)
        return made

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """A request arrives: it goes to P first."""
        self.arrived += 1
        self.sent[name + OF_P] = arrives
        first = SubmitRequest(arrives.family, arrives.tokens, 1, arrives.beside)
        self.prefill.submit(name + OF_P, first, dict(TO_DECODE))

    def _between(self) -> None:
        """What P has computed goes to D."""
        for name, params in self.prefill.returned.items():
            self.decode.submit(name.removesuffix(OF_P), self.sent.pop(name), params)
        self.prefill.returned.clear()

    def step(self) -> None:
        """Both loops go round once. From the end of the first lease on, P may have given up what it
        keeps for D."""
        if self.clock.now >= self.lease_s:
            self.prefill.facts.append(MayFail())
        super().step()

    def restart(self, another: Another = "") -> None:  # noqa: ARG002 (both serve one model)
        """The engine whose turn it is is shut down, if nothing runs, and another one is started
        with its address. The other one goes on."""
        if self.dead or self.running or any(each.queue for each in self.engines):
            return
        place = self.arrived % 2
        ends = self.engines[place]
        ends.end()
        self.clock.stop(self.threads[place])
        self.gone.append(ends)
        begins = self._made(place, ends.plan, len(self.gone))
        begins.owners.judged["engines that were started again"] += 1
        self.engines[place] = begins
        self.prefill, self.decode = self.engines

    def pause(self, new: bool) -> None:
        """D is paused."""
        self.decode.pause(new)

    def resume(self) -> None:
        """A pause ends."""
        self.decode.resume()

    def loses(self) -> None:
        """The memory behind the connector fails."""
