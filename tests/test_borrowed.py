"""A command line that names a release in the cache folder: which vLLM it imports, and what it
refuses. The release is made up: a package that says its version and can do nothing."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kvproof.cli.main import main
from kvproof.live.availability import installed, place
from kvproof.live.contract_check import check
from tests.trees import made

TRACE = str(Path(__file__).parent.parent / "findings" / "stray_report_dies" / "trace.jsonl")
COMMANDS = (
    ["sample", "--machine", "live"],
    ["replay", TRACE, "--machine", "live"],
    ["gate"],
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder whose 0.33.0 says that it is 0.31.7, and an environment to be put back."""
    real = _forget_vllm()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    made(tmp_path / "vllm" / "0.33.0" / "site-packages", version="0.31.7")
    yield tmp_path
    _forget_vllm()
    sys.modules.update(real)


def _forget_vllm() -> dict[str, ModuleType]:
    """Forget vLLM, and what the contract found in it. Gives its modules."""
    check.cache_clear()
    names = [name for name in sys.modules if name.split(".")[0] == "vllm"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.mark.parametrize("command", COMMANDS[:2], ids=lambda c: c[0])
def test_the_vllm_of_the_cache_is_the_one_imported(
    command: list[str], cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--vllm", "0.33.0", "--cache", str(cache)]) == 3
    said = capsys.readouterr().out
    assert said.startswith("UNKNOWN: This vLLM has no vllm.config, needed for core")
    assert "Use kvproof doctor" in said
    assert installed() == "0.31.7"
    assert place() == cache / "vllm" / "0.33.0" / "site-packages" / "vllm"
    first = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])
    assert first.is_relative_to(cache / "trees")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_release_that_is_not_there(
    command: list[str], cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--vllm", "0.32.0", "--cache", str(cache)]) == 2
    said = capsys.readouterr().err
    assert "vLLM 0.32.0 is not in the cache folder" in said
    assert "Use pip install --no-deps --target " in said


@pytest.mark.parametrize(
    "command",
    [["sample"], ["replay", TRACE, "--machine", "model"]],
    ids=lambda c: c[0],
)
def test_a_release_without_real_vllm(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--vllm", "0.33.0"]) == 2
    assert "Use --machine live, or leave --vllm out." in capsys.readouterr().err
