"""Before vllm#51749 only blocks of full attention were erased, although window layers read whole
blocks too."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="windows_are_not_zeroed",
    origin="vllm#51749",
    mistake="new blocks of a window group are not erased",
    replaces={
        "reference.scheduling.reported_to_worker:blocks_to_zero": lambda group, blocks, loaded: [
            b for b in blocks if b not in loaded and group.kind == "full"
        ]
    },
    breaks=("new_blocks_are_zeroed",),
    cluster="three",
    trace_events=2,
)
