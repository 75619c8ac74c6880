"""The two sides of a KV transfer, by its name: which engine sends, and which receives.

A transfer of a request from P to D has the name of the request. With follow-up turns D keeps the
blocks of a finished request and offers them to P. This reverse transfer has the name of the earlier
request with ` reverse` at the end, and the request that follows it loads them.

Source: `NixlPullConnectorScheduler` with `bidirectional_kv_xfer` (vllm#32553).
"""

from typing import NamedTuple

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.job import REVERSE


class Side(NamedTuple):
    """An engine of a transfer and its request. The request is empty where no job follows."""

    engine: EngineConfig
    request: str


def reverse_of(name: str) -> str:
    """The name of the reverse transfer of a request that D finished."""
    return name + REVERSE


def is_reverse(transfer: str) -> bool:
    """Whether a transfer of this name goes from D to P."""
    return transfer.endswith(REVERSE)


def giver(cluster: Cluster, transfer: str) -> Side:
    """The side whose blocks are read."""
    sender = cluster.decode if is_reverse(transfer) else cluster.prefill
    return Side(sender, transfer.removesuffix(REVERSE))


def taker(cluster: Cluster, transfer: str) -> Side:
    """The side whose blocks are written."""
    if not is_reverse(transfer):
        return Side(cluster.decode, transfer)
    follow_up = cluster.follow_up(transfer.removesuffix(REVERSE))
    return Side(cluster.prefill, follow_up.name if follow_up else "")


def incoming(cluster: Cluster, engine: str, name: str) -> str:
    """The name of the transfer that a request on an engine may load from; empty where there is
    none."""
    if engine == cluster.decode.name:
        return name
    follows = cluster.job(name).follows
    return reverse_of(follows) if follows else ""


def transfer_names(cluster: Cluster) -> list[str]:
    """The names that the transfers of a cluster can have."""
    names = [job.name for job in cluster.jobs]
    return [*names, *map(reverse_of, names)]
