"""vllm#48481: the worker erased all new attention blocks, also those that an asynchronous load was
filling at that time."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="blocks_of_loads_are_zeroed",
    origin="vllm#48481",
    mistake="blocks that a load fills are erased by the step that begins the load",
    replaces={
        "reference.scheduling.reported_to_worker:blocks_to_zero": lambda group, blocks, _loaded: (
            [*blocks] if group.attention else []
        )
    },
    breaks=("zeroed_blocks_are_new",),
    cluster="pd",
    trace_events=7,
)
