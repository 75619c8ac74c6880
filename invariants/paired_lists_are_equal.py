"""With prefix caching, P's list of a Mamba group has placeholders before the state, and D's list
has one entry. The worker of D failed on the assertion `len(local) == len(remote)` (vllm#42554). The
fix trimmed a list to its last n blocks, and with n = 0 this slice is the whole list (review of
vllm#42554)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import State
from kvproof.model.subjects import Subject


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """After trimming, both lists have the same number of blocks in every group."""
    for transfer in state.transfers:
        for group, (local, remote) in enumerate(transfer.pairs):
            if len(local) != len(remote):
                yield because(
                    reason(
                        "fills_blocks",
                        "D fills {count} blocks {local} of {request} in group {group}",
                        count=len(local),
                        local=local,
                    ),
                    reason(
                        "sends_blocks",
                        "P sends {count} blocks {remote}",
                        count=len(remote),
                        remote=remote,
                    ),
                    engine=cluster.decode.name,
                    request=transfer.request,
                    group=group,
                )


INVARIANT = Invariant(
    id="paired_lists_are_equal",
    name="after trimming, the local and the remote block list have equal length in every group",
    origin="vllm#42554",
    severity=Severity.CRASH,
    check=EachState(check),
    needs=(Need.PAIRED_BLOCKS,),
    subjects=(Subject.READ, Subject.PARAMS, Subject.RAISES),
    killed_by="ssm_placeholders_not_trimmed",
)
