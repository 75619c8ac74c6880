"""Before vllm#41383, P's lease was not renewed. It expired while D still read the blocks, P
allocated them to another request, and D read the KV of that request."""

from kvproof.model.faults.claims import TRANSFERS, claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="lease_ends_under_reader",
    origin="vllm#41383",
    in_vllm="NixlBaseConnectorWorker._handle_heartbeat",
    mistake="P frees its blocks when the lease expires, although D still reads them",
    replaces={
        "reference.transfers.pull:renewed": lambda _transfer: False,
        "counting_abstraction.transfer:renewed": lambda _t: False,
    },
    breaks=("nothing_reused_under_transfer",),
    cluster="pd",
    trace_events=8,
    refutes=claims(TRANSFERS, "blocks_outlive_their_readers"),
)
