"""What vLLM 0.32.0 does, found by kvproof on the live connector; of the class of #46892. D has
cached a state at a boundary and full attention hits further; P brings the state for the end. The
cached state is not used, not referenced, not taken. It is counted all the same among the blocks the
request will take from the free queue: a request that fits exactly has to wait."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="superseded_state_reserved",
    origin="kvproof, vLLM 0.32.0",
    mistake="a cached state that a load makes superfluous is counted among the blocks to be taken",
    replaces=("states_superseded", lambda _left_behind: 0),
    breaks=("predicted_is_taken",),
    cluster="pd-superseding",
    trace_events=13,
)
