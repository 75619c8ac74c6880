"""The survey of the installed release: the child process, with few episodes."""

from pathlib import Path

import pytest

from kvproof.cli.release_surveys import whole
from kvproof.model.traces.trace_reader import read

pytestmark = pytest.mark.live

FINDING = Path(__file__).parent.parent / "findings" / "superseded_state_reserved" / "trace.jsonl"


def test_a_recorded_finding_shows_again(tmp_path: Path) -> None:
    from kvproof.cli import survey_release
    from kvproof.live import availability

    out = tmp_path / "out.json"
    options = ["--traces", str(tmp_path / "traces"), "--trace", str(FINDING)]
    assert survey_release.main([str(out), *options]) == 0
    records = whole(out, availability.installed())
    assert records is not None
    assert [r["shown"] for r in records] == [True]
    kept = read(tmp_path / "traces" / records[0]["broken"][0]["trace"])
    assert kept.finding is not None


def test_what_the_adapter_gets_wrong_is_no_engines_death(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.cli.survey_release import Surveyor
    from kvproof.gate.difference.judged import sampled
    from kvproof.live.machine import LiveMachine
    from kvproof.live.observer.recorder import Recorder
    from kvproof.model.presets import CLUSTERS

    monkeypatch.delattr(Recorder, "start")
    surveyor = Surveyor("0.0.0", Path())
    cluster = CLUSTERS["full"]
    record = surveyor.record(
        cluster, "sampled", "full", lambda: sampled(cluster, LiveMachine, 0, 3, 10)
    )
    assert "no attribute 'start'" in record["reason"]
    assert "broken" not in record
