"""What lies in the cache folder: releases of vLLM and surveys, whole or not at all."""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.releases import surveys as release_surveys
from benchmarks.releases.surveys import Surveys, whole
from kvproof.live import releases as cache_folder
from kvproof.live.releases import Cache
from tests.test_releases import good


def survey_of(version: str, *records: dict[str, Any]) -> str:
    return json.dumps({"vllm": version, "records": records})


def test_a_half_written_survey_is_no_survey(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    assert whole(file, "0.1.0") is None
    file.write_text(survey_of("0.1.0", good()[0]))
    assert whole(file, "0.1.0") == [good()[0]]
    assert whole(file, "0.2.0") is None
    file.write_text(file.read_text()[:-5])
    assert whole(file, "0.1.0") is None


def test_what_two_processes_install_at_once_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        target = Path(command[command.index("--target") + 1])
        (target / "vllm").mkdir(parents=True)
        # The other process is faster.
        (tmp_path / "vllm" / "0.1.0" / "site-packages" / "other").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(cache_folder.children, "run", pip)
    place = Cache(tmp_path).installed("0.1.0")
    assert [path.name for path in place.iterdir()] == ["other"]
    assert [path.name for path in (tmp_path / "vllm").iterdir()] == ["0.1.0"]


def test_what_was_killed_while_pip_ran_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **_: Any) -> Any:
        (Path(command[command.index("--target") + 1]) / "vllm").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_folder.children, "run", pip)
    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path).installed("0.1.0")
    assert not list((tmp_path / "vllm").iterdir())


@pytest.mark.parametrize("ends", [True, False])
def test_a_survey_appears_with_its_traces_or_not_at_all(
    ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(_env: Any, arguments: list[str]) -> None:
        survey = survey_of("0.18.0", *good())
        Path(arguments[0]).write_text(survey if ends else survey[:-1])
        traces = Path(arguments[arguments.index("--traces") + 1])
        traces.mkdir()
        (traces / "t.jsonl").write_text("a trace")

    monkeypatch.setattr(release_surveys, "_in_its_own_process", process)
    monkeypatch.setattr(Surveys, "witnesses", lambda _: tmp_path)
    monkeypatch.setattr(Cache, "installed", lambda *_: tmp_path)
    monkeypatch.setattr(Surveys, "_environment", lambda *_: {})
    release = Surveys(tmp_path).survey("0.18.0", 0, 1)
    there = sorted(path.name for path in (tmp_path / "surveys").rglob("*"))
    stem = f"0.18.0-{release_surveys.fingerprint()}-0-1"
    assert there == ([stem, f"{stem}.json", "t.jsonl"] if ends else [])
    assert release.reason == ("" if ends else "its survey is not whole")


@pytest.mark.nightly
def test_a_broken_folder_is_unknown_with_a_reason(tmp_path: Path) -> None:
    surveys = Surveys(tmp_path)
    for name in ("0.18.0", "needed"):
        (tmp_path / "vllm" / name / "site-packages").mkdir(parents=True)
    half = tmp_path / "vllm" / "0.18.0" / "site-packages" / "vllm.py"
    half.write_text("raise ImportError('half of a vLLM')")
    release = surveys.survey("0.18.0", 0, 1)
    assert release.records == ()
    assert release.reason


def test_what_all_releases_need_is_installed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []

    def install(_self: Cache, folder: Path, _choices: Any) -> None:
        made.append(folder)
        time.sleep(0.05)
        cache_folder.packages(folder).mkdir(parents=True)

    monkeypatch.setattr(Cache, "_install", install)
    cache = Cache(tmp_path)
    with ThreadPoolExecutor(2) as two:
        folders = list(two.map(lambda _: cache.needed(), range(2)))
    assert len(made) == 1
    assert folders == [cache_folder.packages(made[0])] * 2


def test_what_pip_says_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "PACKAGES", ("kvproof-no-such-package",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    release = Surveys(tmp_path).survey("0.18.0", 0, 1)
    assert release.reason.startswith("pip cannot install it: ")
    assert not list((tmp_path / "vllm").iterdir())
