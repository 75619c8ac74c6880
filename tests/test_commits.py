"""Commits of a git clone as trees: unpacked whole or not at all, once for each content; and
releases that are in the cache folder."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.live.trees import commit, commits, named
from kvproof.model.errors import UsageError
from tests.trees import git, imported, inside, made, refusal


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of four commits: without vLLM, with a first and a second one, and with notes."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "README").write_text("a fork")
    _commit(folder, "nothing")
    made(folder, "first")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_x.py").touch()
    _commit(folder, "first")
    (folder / "vllm" / "v1" / "core" / "__init__.py").write_text("NAME = 'second'\n")
    _commit(folder, "second")
    (folder / "NOTES").write_text("and nothing of vLLM")
    _commit(folder, "notes")
    return folder


def _commit(folder: Path, tag: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", tag)
    git(folder, "tag", tag)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_commit_by_all_its_names(clone: Path, cache: Path) -> None:
    number = git(clone, "rev-parse", "second")
    trees = [commit(clone, ref, cache) for ref in ("second", "HEAD~1", "main^", number, number[:7])]
    assert len({tree[1:] for tree in trees}) == 1
    assert [tree.name for tree in trees[:2]] == [
        f"{r} ({number[:10]})" for r in ("second", "HEAD~1")
    ]
    assert [tree.name for tree in trees[3:]] == [number[:10]] * 2
    assert imported(trees[0]) == "second 0.0.0+cpu"
    assert inside(trees[0].package.parent) >= {"vllm/v1/core/__init__.py"}
    assert not {"tests", "README", "vllm.tar"} & inside(trees[0].package.parent)
    assert git(clone, "status", "--porcelain") == ""


def test_a_hook_of_another_clone(clone: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git gives its hooks variables that would lead git to the clone of the hook."""
    for name in commits.REDIRECT:
        monkeypatch.setenv(name, "/elsewhere")
    assert imported(commit(clone, "first", cache)).startswith("first")


@pytest.mark.parametrize("ref", ["gone", "", "-h", "--all", "HEAD:vllm", "a b", "first..second"])
def test_a_commit_that_is_not_there(ref: str, clone: Path, cache: Path) -> None:
    text = refusal(lambda: commit(clone, ref, cache))
    assert "has no commit" in text
    assert "Use a branch, a tag or a commit" in text
    assert not cache.exists()


def test_a_commit_without_vllm(clone: Path, cache: Path) -> None:
    assert "has no package vllm" in refusal(lambda: commit(clone, "nothing", cache))


def test_what_is_no_clone(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("folder", "file", "missing"):
        assert "is no git clone" in refusal(lambda name=name: commit(tmp_path / name, "x", cache))


def test_no_git(clone: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nothing")
    assert "There is no git" in refusal(lambda: commit(clone, "main", cache))


def test_a_shallow_clone(clone: Path, cache: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", clone.as_uri(), str(shallow))
    assert imported(commit(shallow, "HEAD", cache)).startswith("second")
    text = refusal(lambda: commit(shallow, "HEAD~2", cache))
    assert "git fetch --unshallow" in text


def test_a_clone_that_lacks_files(clone: Path, cache: Path, tmp_path: Path) -> None:
    git(clone, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "partial"
    words = ["-q", "--filter=blob:none", "--no-checkout", clone.as_uri(), str(partial)]
    git(tmp_path, "clone", *words)
    clone.rename(tmp_path / "moved")
    text = refusal(lambda: commit(partial, "HEAD", cache))
    assert "git cannot unpack HEAD" in text
    assert "made with --filter" in text
    assert list((cache / "commits").iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_commit_is_unpacked_whole_or_not_at_all(
    error: type[BaseException], clone: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack: Callable[[Path, Path], None] = commits.unpack

    def half(archive: Path, folder: Path) -> None:
        unpack(archive, folder)
        raise error

    monkeypatch.setattr(commits, "unpack", half)
    with pytest.raises(error):
        commit(clone, "first", cache)
    assert list((cache / "commits").iterdir()) == []
    monkeypatch.setattr(commits, "unpack", unpack)
    assert imported(commit(clone, "first", cache)).startswith("first")


def test_an_archive_that_leads_outside(clone: Path, cache: Path) -> None:
    (clone / "vllm" / "outside").symlink_to("/etc")
    _commit(clone, "leads")
    assert "cannot be unpacked" in refusal(lambda: commit(clone, "leads", cache))
    assert list((cache / "commits").iterdir()) == []


def sized(path: Path, size: int, age_s: float = 0) -> Path:
    """A commit of the cache folder, used so many seconds ago."""
    (path / "vllm").mkdir(parents=True)
    (path / "vllm" / "__init__.py").write_bytes(bytes(size))
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_oldest_commits_go_and_none_in_use(
    clone: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(commits.LIMIT, "0.000007")
    used = commit(clone, "first", cache)
    old, held, newer = (
        sized(cache / "commits" / name, 3000, age)
        for name, age in (("a", 90), ("b", 60), ("c", 30))
    )
    holds = "import sys; from pathlib import Path; from kvproof.model.files.folders import hold\n"
    holds += "print(hold(Path(sys.argv[1])), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holds, held],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        os.utime(held, (1, 1))
        commit(clone, "second", cache)
        assert held.is_dir()
        other.communicate("")
    assert not old.exists()
    assert newer.is_dir()
    assert used.package.is_dir()
    assert commit(clone, "first", cache).package == used.package


def test_a_commit_that_another_process_removes_meanwhile_is_gone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(commits.LIMIT, "0.000004")
    gone, left = (sized(cache / "commits" / name, 3000) for name in "ab")
    both = commits.kept_size(cache)
    sizes = commits._sizes

    def meanwhile(folder: Path) -> dict[Path, int]:
        found = sizes(folder)
        shutil.rmtree(gone)
        return found

    monkeypatch.setattr(commits, "_sizes", meanwhile)
    commits.shrink(cache)
    assert both.commits == 2
    assert left.is_dir()


def test_a_limit_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv(commits.LIMIT, wrong)
        with pytest.raises(UsageError, match="Use a number of GB"):
            commits.limit_bytes()


def test_a_bare_clone_and_what_is_not_committed(clone: Path, cache: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(clone), str(bare))
    (clone / "vllm" / "v1" / "core" / "__init__.py").write_text("NAME = 'not committed'\n")
    assert commit(bare, "HEAD", cache).package == commit(clone, "HEAD", cache).package
    assert imported(commit(clone, "main", cache)).startswith("second")


def test_a_release_of_the_cache_folder_is_imported(cache: Path) -> None:
    made(cache / "vllm" / "0.33.0" / "site-packages", "kept", "0.31.7")
    assert imported(named("0.33.0", cache)).startswith("kept 0.31.7")
