"""vllm#36958: D reported the end of its read with its own request id, which P did not know. P kept
the blocks of a completed transfer."""

from kvproof.model import config
from kvproof.model.counting_abstraction.transfer import TransferCounts, TransferSizes, done
from kvproof.model.environment import turns
from kvproof.model.faults.claims import TRANSFERS, claims
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.transfer_ends import transfer_done
from kvproof.model.state import State


def unknown_to_prefill(cluster: config.Cluster, state: State, name: str) -> State:
    """The end of a read; the sender does not learn of it."""
    source = turns.parties(cluster, name).source
    return transfer_done(cluster, state, name).with_engine(state.engine(source.name))


def still_pinned(sizes: TransferSizes, t: TransferCounts) -> TransferCounts:
    """P keeps the blocks that it kept."""
    return done(sizes, t)._replace(pinned=t.pinned)


FAULT = Fault(
    name="read_is_not_reported",
    origin="vllm#36958",
    in_vllm="NixlBaseConnectorWorker._get_new_notifs",
    mistake="P does not recognise the report that D has read the blocks, and keeps them",
    replaces={
        "reference.transfers.transfer_ends:transfer_done": unknown_to_prefill,
        "counting_abstraction.transfer:done": still_pinned,
    },
    breaks=("every_request_can_finish",),
    cluster="pd",
    trace_events=12,
    refutes=claims(TRANSFERS, "counts_are_none_when_over"),
)
