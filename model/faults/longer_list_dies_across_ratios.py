"""vLLM 0.32.0, found by kvproof on the live connector. Without Mamba groups, D's worker asserts
that its list is not longer than P's list. If a block of D is wider than a block of P, the padding
of D's last block makes D's list longer, and the engine dies. For a wider block of P, see
`end_trim_across_ratios`."""

from kvproof.model import config
from kvproof.model.environment import turns
from kvproof.model.faults.fault import Fault
from kvproof.model.phases import Phase
from kvproof.model.reference.transfers.loads import start_load
from kvproof.model.state import Death, State


def no_longer_than_remote(cluster: config.Cluster, state: State, name: str) -> State:
    """Stop D's engine if a list of attention blocks is longer than P's. This needs unequal ratios;
    with equal ratios D's list is never longer."""
    state = start_load(cluster, state, name)
    source, _, sink, _ = turns.parties(cluster, name)
    transfer, engine = state.transfer(name), state.engine(sink.name)
    ratios = (sink.physical_per_logical, source.physical_per_logical)
    if transfer is None or transfer.phase != Phase.READING or ratios[0] == ratios[1]:
        return state
    for index, group in enumerate(sink.groups):
        ours = len(transfer.local[index]) * ratios[0]
        theirs = len(transfer.remote[index]) * ratios[1]
        if group.attention and ours > theirs:
            engine = engine._replace(
                dead=Death(message=f"lists of {ours} and {theirs} blocks do not pair")
            )
    return state.with_engine(engine)


FAULT = Fault(
    name="longer_list_dies_across_ratios",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlBaseConnectorWorker._apply_prefix_caching",
    mistake=(
        "with unequal kernel blocks per block, D asserts that its list is not longer than P's list"
    ),
    replaces={"reference.transfers.loads:start_load": no_longer_than_remote},
    breaks=("engine_survives",),
    cluster="pd-ratio-decode",
    trace_events=5,
    dies_in=(
        "_apply_prefix_caching",
        "_read_blocks",
    ),
)
