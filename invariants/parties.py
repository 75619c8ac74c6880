"""Who gives and who takes in a KV transfer, from the roles of the engines and its name."""

from typing import NamedTuple

from kvproof.model.config import REVERSE, Cluster, Engine


class Side(NamedTuple):
    """An engine that has a part in a transfer, and its request; empty where there is none yet."""

    engine: Engine
    request: str


def is_reverse(transfer: str) -> bool:
    """Whether a transfer of this name goes from D to P, for the next turn of a conversation."""
    return transfer.endswith(REVERSE)


def giver(cluster: Cluster, transfer: str) -> Side:
    """The engine whose blocks are read: P, and of a reverse transfer D."""
    engine = cluster.decode if is_reverse(transfer) else cluster.prefill
    return Side(engine, transfer.removesuffix(REVERSE))


def taker(cluster: Cluster, transfer: str) -> Side:
    """The engine whose blocks are written: D for the same request, or P for the one after it."""
    if not is_reverse(transfer):
        return Side(cluster.decode, transfer)
    earlier = transfer.removesuffix(REVERSE)
    return Side(cluster.prefill, next((j.name for j in cluster.jobs if j.follows == earlier), ""))


def coming_to(cluster: Cluster, engine: str, request: str) -> str:
    """The name of the transfer whose tokens a request on this engine may take; empty where there
    is none."""
    if engine == cluster.decode.name:
        return request
    follows = cluster.job(request).follows
    return follows + REVERSE if follows else ""
