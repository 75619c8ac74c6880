"""The real vLLM as sources: its Python files alone, with the compiled parts of the installed wheel.
One process imports it, and two fail."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from kvproof.cli import doctor
from kvproof.live import availability, children
from kvproof.live.trees import environment, named
from kvproof.live.trees.mirror import COMPILED
from tests.sentences import two_sentences
from tests.trees import made

pytestmark = pytest.mark.live

PROGRAM = (sys.executable, "-m", "kvproof")

WHERE = """
import json, sys
from kvproof.live.availability import installed, place
from kvproof.cli.main import main
code = main(["sample", "--machine", "live", "--config", "pd-full", "--examples", "3"])
import torch, vllm
from vllm.platforms import current_platform
parts = [m.__file__ for n, m in sys.modules.items() if n.startswith("vllm.") and m.__file__]
mapped = [line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps")]
print(json.dumps({
    "code": code, "package": str(place()), "version": installed(), "file": vllm.__file__,
    "outside": [f for f in parts if not f.startswith(vllm.__path__[0])],
    "compiled": [f for f in mapped if "/vllm/" in f and ".so" in f],
    "platform": type(current_platform).__name__,
}))
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    return availability.place()


@pytest.fixture
def checkout(wheel: Path, tmp_path: Path) -> Path:
    """The Python files of the installed vLLM, linked into a folder as a clone has them."""

    def left_out(_folder: str, names: list[str]) -> list[str]:
        return [n for n in names if n.endswith((*COMPILED, ".pyc")) or n == "__pycache__"]

    folder = tmp_path / "my checkout"
    shutil.copytree(wheel, folder / "vllm", ignore=left_out, copy_function=os.symlink)
    return folder


@pytest.mark.nightly
def test_sources_are_driven_with_the_parts_of_the_wheel(checkout: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in checkout.rglob("*")}
    tree = named(str(checkout), tmp_path / "cache")
    ran = children.run([sys.executable, "-c", WHERE], env=environment(tree), timeout_s=300)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["code"] == 0, ran.stdout
    assert found["package"] == str(checkout / "vllm")
    assert found["outside"] == []
    assert found["compiled"]
    assert found["platform"] == "CpuPlatform"
    mirror = tree.folders[0]
    assert found["file"] == str(mirror / "vllm" / "__init__.py")
    assert {path: path.stat().st_mtime_ns for path in checkout.rglob("*")} == before
    # vLLM looks at the model in a process of its own, and keeps what it found.
    assert list(tmp_path.glob("cache/inspected/*/modelinfos/*"))


def test_the_error_of_a_tree_is_shown_to_its_author(tmp_path: Path) -> None:
    package = made(tmp_path / "tree") / "vllm"
    (package / "config.py").write_text("def f():\n    raise NameError('a mistake')\n\nf()\n")
    words = ["sample", "--machine", "live", "--vllm", str(tmp_path / "tree")]
    ran = children.run([*PROGRAM, *words, "--cache", str(tmp_path / "cache")], timeout_s=300)
    assert ran.returncode == 3
    assert "cannot be imported (NameError: a mistake). Use kvproof doctor" in ran.stdout
    assert ran.stderr.splitlines()[-3:] == [
        "vllm/config.py:4: f()",
        "vllm/config.py:2: raise NameError('a mistake')",
        "NameError: a mistake",
    ]


def test_compiled_parts_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_DIR", str(tmp_path / "records"))
    package = tmp_path / "tree" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import vllm._C\n")
    (package / "_C.abi3.so").write_bytes(b"of another machine")
    words = ["doctor", "--vllm", str(tmp_path / "tree"), "--cache", str(tmp_path / "cache")]
    ran = children.run([*PROGRAM, *words], timeout_s=300)
    assert ran.returncode == 3
    of_tree, *watched, kept = ran.stdout.splitlines()
    assert kept.startswith("The cache folder ")
    assert two_sentences(of_tree)
    assert "Use compiled parts that fit it" in of_tree
    assert watched == list(doctor.watched())
    assert "vllm/__init__.py:1: import vllm._C" in ran.stderr
