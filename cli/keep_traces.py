"""A pytest plugin that writes the trace of each failing run, as the command line does.

`pytest -p kvproof.cli.keep_traces` writes it to a new file in kvproof-traces. The report of the
test has the command that replays it.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from kvproof.model.errors import UsageError
from kvproof.model.traces.state_diff import diff, flat
from kvproof.model.traces.trace import Trace, write_in
from kvproof.strategies.run import Violated

FOLDER = Path("kvproof-traces")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the trace if a test failed with a run that violates an invariant."""
    report = yield
    if report.failed and call.excinfo is not None and isinstance(call.excinfo.value, Violated):
        live = item.get_closest_marker("live") is not None
        report.sections.append(_section(call.excinfo.value, live))
    return report


def _section(violated: Violated, live: bool) -> tuple[str, str]:
    """Write the trace, and return a section of the test report, its title first: the command that
    replays the trace, or why there is none."""
    try:
        trace = trace_of(violated, live)
        path = write_in(FOLDER, violated.finding.invariant, trace)
    except UsageError as error:
        return "The trace was not written", str(error)
    return "Trace; replay it with", f"kvproof replay {path} --machine {trace.machine}"


def trace_of(violated: Violated, live: bool) -> Trace:
    """Return the run as a trace, with the states that it went through."""
    vllm = None
    if live:
        from kvproof.live.availability import installed

        vllm = installed()
    return Trace(
        cluster=violated.cluster,
        events=violated.events,
        changes=tuple(diff(flat(step.before), flat(step.after)) for step in violated.steps),
        finding=violated.finding,
        machine="live" if live else "model",
        vllm=vllm,
    )
