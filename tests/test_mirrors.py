"""Mirrors of trees: which files a process gets, and that nothing is written into a tree."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from kvproof.live.trees import environment, fingerprint, lend, named
from kvproof.live.trees.mirror import wheel
from tests.trees import imported, inside, made, refusal

BUILT = f"_C{EXTENSION_SUFFIXES[0]}"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel of vLLM that is the first on the path. Returns its package."""
    site = made(tmp_path / "installed", version="0.32.0")
    for name in (BUILT, f"v1/{BUILT}", f"gone/{BUILT}"):
        (site / "vllm" / name).parent.mkdir(exist_ok=True)
        (site / "vllm" / name).write_bytes(b"compiled")
    (site / "vllm" / "only_in_the_wheel.py").touch()
    (site / "vllm.libs").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(site), *sys.path])
    return site / "vllm"


def test_compiled_parts_of_the_wheel(installed: Path, tmp_path: Path, cache: Path) -> None:
    """Its Python files are not used, and folders that the sources do not have do not appear."""
    assert wheel() == installed
    mirror = named(str(made(tmp_path / "source")), cache).folders[0]
    assert (mirror / "vllm" / BUILT).resolve() == installed / BUILT
    assert (mirror / "vllm" / "v1" / BUILT).resolve() == installed / "v1" / BUILT
    assert not (mirror / "vllm" / "gone").exists()
    assert not (mirror / "vllm" / "only_in_the_wheel.py").exists()
    assert (mirror / "vllm.libs").resolve() == installed.parent / "vllm.libs"


def test_a_mirror_follows_its_tree(tmp_path: Path, cache: Path) -> None:
    """What is changed, added and removed after the first import is seen at the next one."""
    source = made(tmp_path / "source", "first")
    assert imported(named(str(source), cache)).startswith("first")
    core = source / "vllm" / "v1" / "core"
    (core / "__init__.py").write_text("from vllm.v1.core.added import NAME\n")
    (core / "added.py").write_text("NAME = 'second'\n")
    assert imported(named(str(source), cache)).startswith("second")
    (core / "__init__.py").write_text(
        "try:\n    from vllm.v1.core.added import NAME\nexcept ImportError:\n    NAME = 'removed'\n"
    )
    (core / "added.py").unlink()
    assert imported(named(str(source), cache)).startswith("removed")


def test_the_mirror_of_a_tree_that_is_gone_is_removed(tmp_path: Path, cache: Path) -> None:
    first, second = (named(str(made(tmp_path / name)), cache) for name in ("a", "b"))
    shutil.rmtree(first.package.parent)
    named(str(made(tmp_path / "c")), cache)
    assert not first.folders[0].parent.exists()
    assert second.folders[0].is_dir()
    assert len(list((cache / "trees").iterdir())) == 2


def test_two_processes_make_one_mirror(tmp_path: Path, cache: Path) -> None:
    source = made(tmp_path / "source")
    program = (
        "from pathlib import Path; from kvproof.live.trees import named\n"
        f"print(named({str(source)!r}, Path({str(cache)!r})).folders[0])"
    )
    path = os.pathsep.join(folder for folder in sys.path if folder)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    folders = {process.communicate(timeout=600)[0] for process in both}
    assert len(folders) == 1
    assert len(list((cache / "trees").iterdir())) == 1


def test_linked_folders_and_loops(tmp_path: Path, cache: Path) -> None:
    source = made(tmp_path / "source")
    core = source / "vllm" / "v1" / "core"
    core.rename(tmp_path / "elsewhere")
    core.symlink_to(tmp_path / "elsewhere")
    (source / "vllm" / "loop").symlink_to(source / "vllm")
    (source / "vllm" / "dangling.py").symlink_to("nothing")
    tree = named(str(source), cache)
    before = fingerprint(tree)
    assert imported(tree).startswith("here")
    assert inside(tmp_path / "elsewhere") == {"__init__.py"}
    (tmp_path / "elsewhere" / "__init__.py").write_text("NAME = 'other'\n")
    assert fingerprint(tree) != before


def test_lending_needs_a_fresh_process(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = named(str(made(tmp_path / "source")), cache)
    monkeypatch.setitem(sys.modules, "vllm", sys)
    assert "already imported vLLM" in refusal(lambda: lend(tree))


def test_an_import_hook_that_comes_first(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = named(str(made(tmp_path / "source")), cache)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr("kvproof.live.trees.tree.place", lambda: tmp_path)
    assert "an import hook of this environment comes first" in refusal(lambda: lend(tree))


def test_children_have_the_tree_before_all_else(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"relative{os.pathsep}{tmp_path}")
    tree = named(str(made(tmp_path / "source")), cache)
    env = environment(tree, (tmp_path / "needed",))
    path = env["PYTHONPATH"].split(os.pathsep)
    assert path[:2] == [str(tree.folders[0]), str(tmp_path / "needed")]
    assert path[2:] == [os.path.abspath("relative"), str(tmp_path)]
    other = environment(named(str(made(tmp_path / "other", "there")), cache))
    assert env["VLLM_CACHE_ROOT"] == other["VLLM_CACHE_ROOT"]
    assert Path(env["VLLM_CACHE_ROOT"]).is_relative_to(cache)
    model = tmp_path / "other" / "vllm" / "model_executor" / "models" / "llama.py"
    model.parent.mkdir(parents=True)
    model.write_text("class Llama: pass\n")
    changed = environment(named(str(tmp_path / "other"), cache))
    assert env["VLLM_CACHE_ROOT"] != changed["VLLM_CACHE_ROOT"]


def test_sources_that_were_built_keep_their_parts(
    installed: Path, tmp_path: Path, cache: Path
) -> None:
    assert installed.exists()
    source = made(tmp_path / "source")
    (source / "vllm" / "_moe.so").write_bytes(b"own")
    mirror = named(str(source), cache).folders[0]
    assert (mirror / "vllm" / "_moe.so").read_bytes() == b"own"
    assert not (mirror / "vllm" / BUILT).exists()


def test_a_fingerprint_is_of_the_python_files(tmp_path: Path, cache: Path) -> None:
    one, two = (named(str(made(tmp_path / name)), cache) for name in ("a", "b"))
    assert fingerprint(one) == fingerprint(two)
    (one.package / "numbers.json").write_text("{}")
    (one.package / "__pycache__").mkdir()
    (one.package / "__pycache__" / "x.py").touch()
    assert fingerprint(one) == fingerprint(two)
    (one.package / "added.py").touch()
    added = fingerprint(one)
    (one.package / "added.py").rename(one.package / "renamed.py")
    assert len({fingerprint(one), added, fingerprint(two)}) == 3
