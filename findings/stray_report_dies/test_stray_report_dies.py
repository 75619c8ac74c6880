"""vLLM 0.32.0, a connector's worker that reports a transfer twice, or reports a request that is
gone. Reported as vllm#46240 and vllm#43226.

The scheduler asserts that it holds every request of a report. A request is aborted while it loads;
its blocks stay until the worker reports the end of the read. A second report, or a report in the
same step that the request was also sent, stops the engine.

The worker of the NIXL pull connector of this release makes no such report (read, not run).

Run: pytest --noconftest test_stray_report_dies.py
On 0.32.0 [released] fails and [patched] passes.
"""

import types
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

FAILS_WITH = "AssertionError"


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore reports that no request waits for."""
    released = Scheduler._update_from_kv_xfer_finished

    def update(self: Any, output: Any) -> None:
        requests = self.requests
        loading = RequestStatus.WAITING_FOR_REMOTE_KVS

        def awaited(name: str) -> bool:
            return name in requests and (
                requests[name].status == loading or requests[name].is_finished()
            )

        received = {name for name in output.finished_recving or () if awaited(name)}
        ended = {name for name in received if requests[name].is_finished()}
        sent = {name for name in output.finished_sending or () if awaited(name)} - ended
        released(self, KVConnectorOutput(finished_sending=sent, finished_recving=received))

    monkeypatch.setattr(Scheduler, "_update_from_kv_xfer_finished", update)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_scheduler() -> Any:
    """A scheduler reduced to reports: it holds one request, aborted while it loads."""
    scheduler = object.__new__(Scheduler)
    aborted = types.SimpleNamespace(
        request_id="r0", status=RequestStatus.FINISHED_ABORTED, is_finished=lambda: True
    )
    scheduler.connector = None
    scheduler.requests = {"r0": aborted}
    scheduler.finished_recving_kv_req_ids = set()
    scheduler._free_request_blocks = lambda _request: None
    return scheduler


def raised_by(scheduler: Any, report: KVConnectorOutput) -> str:
    """The exception of the scheduler for a report; empty if there is none."""
    try:
        scheduler._update_from_kv_xfer_finished(report)
    except Exception as error:
        return type(error).__name__
    return ""


REPORTS: dict[str, list[dict[str, set[str]]]] = {
    "twice": [{"finished_recving": {"r0"}}, {"finished_recving": {"r0"}}],
    "of nobody": [{"finished_sending": {"unknown"}}],
    "both in one step": [{"finished_recving": {"r0"}, "finished_sending": {"r0"}}],
}


def test_the_engine_survives_reports() -> None:
    raised = {}
    for kind, reports in REPORTS.items():
        scheduler = make_scheduler()
        for report in reports:
            error = raised_by(scheduler, KVConnectorOutput(**report))
            if error:
                raised[kind] = error
    assert not raised, f"_update_from_kv_xfer_finished kills the engine: {raised}"
