"""A trace on releases of vLLM, of which the installed one is in the cache folder; and its survey
for the heat map."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.releases import survey
from benchmarks.releases.surveys import whole
from kvproof.cli.on_releases import first_bad_and_good, in_order
from kvproof.live import availability
from kvproof.model.errors import UsageError
from kvproof.model.traces.trace_reader import read
from kvproof.reports.output.search import ReleaseAnswer

ROOT = Path(__file__).parent.parent
FINDING = ROOT / "findings" / "superseded_state_reserved" / "trace.jsonl"


def in_cache(cache: Path, version: str) -> None:
    """Make the installed vLLM a release of a cache folder that needs no further packages."""
    import vllm

    site = Path(vllm.__file__).parent.parent
    folder = cache / "vllm" / version / "site-packages"
    folder.mkdir(parents=True)
    for path in site.glob("vllm*"):
        (folder / path.name).symlink_to(path)
    (cache / "vllm" / "needed" / "site-packages").mkdir(parents=True)


@pytest.mark.live
@pytest.mark.nightly
def test_a_release_shows_the_finding_of_a_trace(run: Any, tmp_path: Path) -> None:
    in_cache(tmp_path / "cache", availability.installed())
    argv = ["--releases", availability.installed(), "--cache", str(tmp_path / "cache")]
    code, out, _ = run("replay", str(FINDING), *argv)
    assert code == 0
    assert out.startswith(f"{availability.installed():8} BAD ")
    assert f"bad from {availability.installed()} or earlier, not good since" in out


def answers(*verdicts: str) -> dict[str, ReleaseAnswer]:
    """The answers of 0.1.0, 0.2.0, ..."""
    return {
        f"0.{number}.0": ReleaseAnswer(verdict=verdict, why="w")  # type: ignore[arg-type]
        for number, verdict in enumerate(verdicts, 1)
    }


def test_the_first_bad_release_and_the_first_good_one_after_the_last_bad() -> None:
    history = answers("SAMPLED", "VIOLATED", "SAMPLED", "VIOLATED", "UNKNOWN", "SAMPLED")
    assert first_bad_and_good(history) == ("0.2.0", "0.6.0")
    assert first_bad_and_good(answers("SAMPLED", "UNKNOWN")) == (None, None)
    assert first_bad_and_good(answers("VIOLATED", "UNKNOWN")) == ("0.1.0", None)


def test_releases_are_asked_from_the_oldest_on(refused: Any) -> None:
    assert in_order(["0.19.0", "0.9.1", "0.19.0"]) == ["0.9.1", "0.19.0"]
    with pytest.raises(UsageError, match="three numbers"):
        in_order(["newest"])
    assert "has no finding" in refused("replay", str(quiet()), "--releases")


def quiet() -> Path:
    """A trace without a finding, in this folder."""
    lines = FINDING.read_text(encoding="utf-8").splitlines()
    path = Path("quiet.jsonl")
    path.write_text("\n".join(x for x in lines if '"finding"' not in x) + "\n", encoding="utf-8")
    return path


@pytest.mark.live
def test_the_survey_of_the_installed_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SAMPLED", ("full-evicting",))
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "000-superseded_state_reserved.jsonl").write_bytes(FINDING.read_bytes())
    out = tmp_path / "out.json"
    options = ["--traces", str(tmp_path / "traces"), "--witnesses", str(runs)]
    assert survey.main([str(out), *options]) == 0
    records = whole(out, availability.installed())
    assert records is not None
    followed, sampled = records
    assert (followed["shown"], sampled["kind"]) == (True, "sampled")
    kept = read(tmp_path / "traces" / followed["broken"][0]["trace"])
    assert kept.finding is not None


@pytest.mark.live
def test_what_the_adapter_gets_wrong_is_no_engines_death(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.gate.difference.judged import sampled
    from kvproof.live.machine import LiveMachine
    from kvproof.live.observer.recorder import Recorder
    from kvproof.model.presets import CLUSTERS

    monkeypatch.delattr(Recorder, "start")
    surveyor = survey.Surveyor("0.0.0", Path())
    cluster = CLUSTERS["full"]
    record = surveyor.record(
        cluster, "sampled", "full", lambda: sampled(cluster, LiveMachine, 0, 3, 10)
    )
    assert "no attribute 'start'" in record["reason"]
    assert "broken" not in record
