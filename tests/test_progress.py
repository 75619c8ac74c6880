"""Progress in a log: where standard error is no terminal, a line now and then."""

import pytest

from kvproof.reports import live_line
from kvproof.reports.live_line import progress


def test_a_log_gets_a_line_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1_000.0
    monkeypatch.setattr(live_line, "LINE_EVERY_S", 30.0)
    monkeypatch.setattr(live_line, "_logged_at", now)
    monkeypatch.setattr(live_line.time, "monotonic", lambda: now)
    monkeypatch.setattr("kvproof.reports.live_line.SHOWN_EVERY_S", 0.0)
    with progress("sampling: {} of {} episodes") as show:
        for second in range(70):
            now += 1.0
            show(second, 70)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["sampling: 30 of 70 episodes", "sampling: 61 of 70 episodes"]
