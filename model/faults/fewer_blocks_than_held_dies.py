"""After a rejection a request may need fewer blocks than it has. The align mode of vLLM asserted
that it never does (vllm#39562, vllm#43382)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="fewer_blocks_than_held_dies",
    born_of="vllm#43382",
    mistake="the engine dies where a request holds more blocks than its next step needs",
    replaces=("may_hold_more", lambda held, needed: held <= needed),
    breaks=("engine_survives",),
    cluster="hybrid-drafts-cut",
)
