"""The copies are made when the step has computed (the class of vllm#51766): a request has read and
written its copy before anything was in it, and a cached state is copied after it has gone on."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="copies_after_the_step",
    born_of="vllm#51766",
    mistake="blocks are copied after the step has read and written them",
    replaces=("copies_before_step", lambda: False),
    breaks=(
        "request_reads_its_own_prefix",
        "state_read_is_state_at_computed",
        "cached_block_holds_its_key",
    ),
    cluster="partial",
)
