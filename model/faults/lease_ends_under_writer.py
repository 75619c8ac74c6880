"""vLLM 0.32.0's push connector on P (vllm#55470): when the lease expires, P frees the blocks
although P itself still writes them to D, or is about to write them. D receives what the next owner
computes."""

from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.push import lease_expired
from kvproof.model.reference.transfers.request_ends import producer_done
from kvproof.model.state import State


def also_while_it_writes(cluster: Cluster, state: State, name: str) -> State:
    """Free P's blocks at the end of the lease in any case."""
    return producer_done(cluster, lease_expired(cluster, state, name), name)


FAULT = Fault(
    name="lease_ends_under_writer",
    origin="vllm#55470",
    in_vllm="NixlBaseConnectorWorker._reap_expired_send_leases",
    mistake="P frees its blocks when the lease expires, although it still writes them to D",
    replaces={"reference.transfers.push:lease_expired": also_while_it_writes},
    breaks=("request_reads_its_own_prefix", "nothing_reused_under_transfer"),
    cluster="push-overdue",
    trace_events=6,
    concerns=lambda cluster: cluster.pushes,
)
