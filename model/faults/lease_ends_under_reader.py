"""Before vllm#41383 nobody renewed P's lease: it ended while D was still reading, the blocks went
to another request, and D was given that one's KV."""

from kvproof.model.faults.claims import TRANSFERS, claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="lease_ends_under_reader",
    origin="vllm#41383",
    mistake="P lets its blocks go when its lease ends, though D still reads them",
    replaces=("renews_lease", lambda _reads: False),
    breaks=("nothing_reused_under_transfer",),
    cluster="pd",
    trace_events=8,
    refutes=claims(TRANSFERS, "blocks_outlive_their_readers"),
)
