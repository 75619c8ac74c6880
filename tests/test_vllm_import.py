"""A vLLM that is installed and fails at import, in any way: one line with its reason, and exit code
3. Here it is a package of that name, before all others on the path."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import python

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NMS = "operator torchvision::nms does not exist"

WAYS = {
    f"raise RuntimeError({NMS!r})": f"RuntimeError: {NMS}",
    "raise ImportError('libtorch_cuda.so: no such file')": "ImportError: libtorch_cuda.so: no such",
    "raise SystemExit(0)": "SystemExit: 0",
    "def (": "SyntaxError: invalid syntax",
    "class Panic(BaseException): pass\nraise Panic('a\\n\\nb')": "Panic: b",
    "import gguf_that_is_not_there": "ModuleNotFoundError: No module named",
    "raise RecursionError": "RecursionError",
}

FINDING = next(Path(__file__).parent.parent.glob("findings/*/trace.jsonl"))

COMMANDS = (
    ("sample", "--machine", "live", "--config", "full"),
    ("replay", str(FINDING), "--machine", "live"),
    ("doctor",),
)

NOISE = "import os, sys\nprint('noise')\nsys.__stdout__.write('noise')\nos.write(1, b'noise')\n"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the program with these packages (name and code) before all others."""

    def call(*command: str, **packages: str) -> "subprocess.CompletedProcess[str]":
        for name, code in packages.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "__init__.py").write_text(code, encoding="utf-8")
        here = {"cwd": tmp_path, "first": [tmp_path], "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return python("-m", "kvproof", *command, **here)

    return call


@pytest.mark.parametrize("code", WAYS)
def test_each_way_to_fail(run: Run, code: str) -> None:
    done = run(*COMMANDS[0], "--json", vllm=code)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    record = json.loads(done.stdout)
    assert record["verdict"] == "UNKNOWN"
    assert f"vLLM cannot be imported ({WAYS[code]}" in record["reason"]
    assert record["reason"].endswith("see what of this vLLM can be driven.")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_each_command(run: Run, command: tuple[str, ...]) -> None:
    """What vLLM prints at its import is not in what the command prints."""
    fails = f"{NOISE}raise RuntimeError('first\\n{NMS}')"
    done = run(*command, vllm=fails)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert f"RuntimeError: {NMS}" in " ".join(done.stdout.split())
    assert "first" not in done.stdout
    done = run(*command, "--json", vllm=fails)
    assert json.loads(done.stdout)["exit_code"] == done.returncode == 3
    assert done.stderr.count("noise") == 3


def test_a_package_of_another_build_than_torch_is_hidden_and_named(run: Run) -> None:
    """vLLM imports torchvision where it is there, through transformers. What goes wrong after it
    here is that this vLLM is empty."""
    asks = "import importlib.util as u\nif u.find_spec('torchvision'): import torchvision\n"
    broken = f"raise RuntimeError({NMS!r})"
    done = run("doctor", "--json", vllm=asks, torchvision=broken, torchcodec="")
    record = json.loads(done.stdout)
    assert record["failure"] is None
    assert [(row["name"], row["why"]) for row in record["hidden"]] == [
        ("torchvision", f"RuntimeError: {NMS}")
    ]
    done = run("doctor", vllm=asks, torchvision=broken)
    said = " ".join(done.stdout.split())
    assert "does not load beside torch" in said
    assert "Use pip uninstall torchvision, or install its build for this torch" in said


def test_an_import_that_is_interrupted_is_named(run: Run) -> None:
    """Also where the interruption is swallowed, as by a bare `except:`."""
    swallows = (
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(2)\nexcept: pass\n"
    )
    done = run(*COMMANDS[0], "--json", vllm=swallows)
    assert done.returncode == 143, done.stderr
    assert done.stderr == ""
    record = json.loads(done.stdout)
    assert (record["verdict"], record["reason"]) == ("UNKNOWN", "interrupted")
