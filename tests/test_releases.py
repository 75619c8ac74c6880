"""The cache folder of releases of vLLM, and the releases that show the finding of a trace."""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.cli import on_releases
from kvproof.cli.on_releases import ReleaseAnswer, first_bad_and_good, in_order
from kvproof.live import availability
from kvproof.live import releases as cache_folder
from kvproof.live.releases import Cache, Failed
from kvproof.model.errors import UsageError

# The cache folder


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
    with pytest.raises(Failed, match="pip cannot install it: "):
        Cache(tmp_path).installed("0.18.0")
    assert not list((tmp_path / "vllm").iterdir())


# A trace on releases


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


@pytest.mark.parametrize(
    ("found", "verdict"), [(("b",), "VIOLATED"), (("a", "b"), "VIOLATED"), (("a",), "UNKNOWN")]
)
def test_a_plan_that_breaks_another_check_says_nothing_of_its_own(
    found: tuple[str, ...], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [{"invariant": each} for each in found]
    said = {"verdict": "VIOLATED", "invariant": found[0], "reasons": ["x"], "findings": findings}
    ran = SimpleNamespace(stdout=json.dumps(said))
    monkeypatch.setattr(on_releases.children, "run", lambda *_, **__: ran)
    answer = on_releases.replayed_alone(Path("plan.jsonl"), "0.33.0", None, wanted="b")
    assert answer.verdict == verdict


def answers(*verdicts: str) -> dict[str, ReleaseAnswer]:
    """The answers of 0.1.0, 0.2.0, ..."""
    return {
        f"0.{number}.0": ReleaseAnswer(verdict=verdict, why="w")
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
