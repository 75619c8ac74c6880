"""P and D with different numbers of tokens in a block."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import TransferDone
from kvproof.model.step import Step


def _unequal(cluster: Cluster) -> bool:
    return len({engine.physical_per_logical for engine in cluster.engines}) > 1


def _pairs(cluster: Cluster, step: Step, event: TransferDone) -> bool:
    transfer = step.before.transfer(event.request)
    pairs = () if transfer is None else transfer.pairs
    return _unequal(cluster) and any(ours for ours, _ in pairs)


GOALS = (
    Goal(
        "unequal_blocks_paired",
        "a transfer fills blocks from blocks of another size",
        *(TransferDone, _pairs, "pd-ratio", "pd-full", _unequal),
    ),
)
