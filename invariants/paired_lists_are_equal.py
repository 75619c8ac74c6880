"""With prefix caching, P's list of a Mamba group has placeholders before the state and D's has one
slot: the worker died on `len(local) == len(remote)` (#42554). And a slice of the last 0 blocks is
the whole list (its review)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import State


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """After trimming, both sides name equally many blocks in every group."""
    for transfer in state.transfers:
        for group, (local, remote) in enumerate(transfer.pairs):
            if len(local) != len(remote):
                yield because(
                    f"D fills {len(local)} blocks {list(local)} of {transfer.request} "
                    f"in group {group}",
                    f"P sends {len(remote)}: {list(remote)}",
                    engine=cluster.decode.name,
                    request=transfer.request,
                    group=group,
                )


INVARIANT = Invariant(
    id="paired_lists_are_equal",
    name="local and remote block lists are equally long in every group after trimming",
    origin="vllm#42554",
    severity=Severity.CRASH,
    check=EachState(check),
    killed_by="ssm_placeholders_not_trimmed",
)
