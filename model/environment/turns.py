"""The names of transfers and their two sides, also of those that go back from D to P.

Follow-up turns: D keeps the blocks of a finished request and offers them to P. The reverse transfer
goes from D to P; its name is the name of the earlier request with ` reverse` at the end.

Source: `NixlPullConnectorScheduler` with `bidirectional_kv_xfer` (vllm#32553).
"""

from typing import NamedTuple

from kvproof.model import config
from kvproof.model.config import REVERSE
from kvproof.model.phases import Phase
from kvproof.model.state import Transfer


class Parties(NamedTuple):
    """The two sides of a transfer: the sending engine with its request (`source`, `sent`), and the
    receiving engine with its request (`sink`, `taken`). `taken` is empty where no job follows."""

    source: config.EngineConfig
    sent: str
    sink: config.EngineConfig
    taken: str


def reverse_of(name: str) -> str:
    """The name of the reverse transfer of a request that D finished."""
    return name + REVERSE


def is_reverse(transfer: str) -> bool:
    """Whether a transfer of this name goes from D to P."""
    return transfer.endswith(REVERSE)


def parties(cluster: config.Cluster, transfer: str) -> Parties:
    """The two sides of the transfer of this name."""
    p, d = cluster.prefill, cluster.decode
    if not is_reverse(transfer):
        return Parties(p, transfer, d, transfer)
    name = transfer.removesuffix(REVERSE)
    follow_up = cluster.follow_up(name)
    return Parties(d, name, p, follow_up.name if follow_up else "")


def incoming(cluster: config.Cluster, engine: str, name: str) -> str:
    """The name of the transfer that a request on an engine may load; empty where there is none."""
    if engine == cluster.decode.name:
        return name
    follows = cluster.job(name).follows
    return reverse_of(follows) if follows else ""


def requested(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it. D's lease may have ended. A second request leaves
    the phase unchanged."""
    begun = {Phase.OFFERED: Phase.READING, Phase.EXPIRED: Phase.REFUSED}
    return transfer.to(begun.get(transfer.phase, transfer.phase))


def over(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it and D keeps no more blocks."""
    return transfer.to(Phase.CLOSED, remote=(), local=(), pairs=())


def expired(transfer: Transfer) -> Transfer:
    """The reverse transfer after D's lease ended. P may still request it, or has requested it."""
    unrequested = transfer.phase == Phase.OFFERED
    phase = Phase.EXPIRED if unrequested else Phase.CLOSED
    return transfer.to(phase, remote=(), local=(), pairs=())
