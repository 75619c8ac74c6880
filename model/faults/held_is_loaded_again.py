"""vLLM 0.32.0, found by kvproof on the live connector. The load of a reverse transfer failed, or P
loaded it and preempted the request, or P loaded a prompt of one token, which it computes again.
When P admits the request again, it counts D's tokens as external again and waits for them. The
connector starts one transfer per request, so nothing is read or reported, and the request waits
with its blocks for ever. In the same situation D marks the transfer as done and computes the tokens
itself."""

from kvproof.model import config
from kvproof.model.environment import turns
from kvproof.model.faults.fault import Fault
from kvproof.model.phases import Phase
from kvproof.model.reference.features.follow_up_turns import loadable
from kvproof.model.state import Request, State

OVER = (Phase.CLOSED, Phase.ABANDONED)
"""Phases of a reverse transfer that P has requested."""


def also_a_second_time(cluster: config.Cluster, state: State, request: Request) -> int:
    """The tokens as if P had not requested them before."""
    name = turns.incoming(cluster, cluster.prefill.name, request.id)
    transfer = state.transfer(name)
    if transfer is not None and transfer.phase in OVER:
        state = state.with_transfer(name, transfer._replace(phase=Phase.OFFERED))
    return loadable(cluster, state, request)


def on_prefill(cluster: config.Cluster, request: Request) -> bool:
    """P requests the blocks again, also those that it has loaded."""
    return cluster.follow_up_turns and request.route == "to_decode"


FAULT = Fault(
    name="held_is_loaded_again",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPullConnectorScheduler.get_num_new_matched_tokens",
    mistake="P waits a second time for a reverse transfer, and no second read is started",
    replaces={
        "reference.features.follow_up_turns:loadable": also_a_second_time,
        "reference.features.follow_up_turns:asks_again": on_prefill,
    },
    breaks=("every_request_can_finish",),
    cluster="turns-recomputing",
    trace_events=15,
    concerns=lambda cluster: cluster.follow_up_turns,
)
