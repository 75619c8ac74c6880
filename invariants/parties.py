"""Which engine sends and which engine receives in a KV transfer, derived from the roles of the
engines and the name of the transfer."""

from typing import NamedTuple

from kvproof.model.config import REVERSE, Cluster, Engine


class Side(NamedTuple):
    """An engine of a transfer and its request; the request is empty if it does not exist yet."""

    engine: Engine
    request: str


def is_reverse(transfer: str) -> bool:
    """Whether a transfer of this name goes from D to P, for the next turn of a conversation."""
    return transfer.endswith(REVERSE)


def giver(cluster: Cluster, transfer: str) -> Side:
    """The engine whose blocks are read: P, and D in a reverse transfer."""
    engine = cluster.decode if is_reverse(transfer) else cluster.prefill
    return Side(engine, transfer.removesuffix(REVERSE))


def taker(cluster: Cluster, transfer: str) -> Side:
    """The engine whose blocks are written: D for the same request; in a reverse transfer P for the
    request that follows it."""
    if not is_reverse(transfer):
        return Side(cluster.decode, transfer)
    earlier = transfer.removesuffix(REVERSE)
    return Side(cluster.prefill, next((j.name for j in cluster.jobs if j.follows == earlier), ""))


def coming_to(cluster: Cluster, engine: str, request: str) -> str:
    """The name of the transfer that a request on this engine may load from; empty if there is
    none."""
    if engine == cluster.decode.name:
        return request
    follows = cluster.job(request).follows
    return follows + REVERSE if follows else ""
