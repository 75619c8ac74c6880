"""What vLLM 0.32.0's scheduler does (#46240, #43226). It takes for granted that it waits for every
report a connector's worker makes: one that comes twice, or for a request that is gone, fails an
assertion and the engine dies."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="stray_report_dies",
    born_of="vllm#46240",
    mistake="a report that nobody waits for fails an assertion",
    replaces=("ignores_stray_reports", lambda: False),
    breaks=("engine_survives",),
    cluster="pd-stray",
)
