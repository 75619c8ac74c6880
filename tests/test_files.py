"""Files that come from outside are read with all their errors, and files that go out appear whole
or not at all."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.model.files import reading, writing
from tests.trees import refusal


def as_file(path: Path) -> None:
    path.write_bytes(b"x" * (reading.MIB + 1))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.exists, "No such file"),
        (Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.symlink_to("/dev/null"), "not a regular file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: path.symlink_to("nothing"), "No such file"),
        (as_file, "larger than 1 MiB"),
    ],
)
def test_only_a_regular_file_is_read(
    make: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    make(path)
    assert why in refusal(lambda: reading.read_text(path, "trace file", 1))


def test_a_text_is_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes("größer".encode("latin-1"))
    assert "(byte 2)" in refusal(lambda: reading.read_text(path, "trace file"))
    path.write_bytes("größer\n".encode())
    assert reading.read_text(path, "trace file") == "größer\n"
    assert reading.read_bytes(Path("/proc/self/status"), "file of unknown size")


def test_a_path_is_shown_as_printable_text() -> None:
    assert reading.shown("a\udcff\x1b[31m\nb") == "a\\xff\\x1b[31m\\nb"
    assert reading.shown("\ud800") == "\\ud800"
    assert reading.shown("größe [red]") == "größe [red]"
    assert len(reading.shown("x" * 10_000)) < 400


@pytest.fixture(params=["with links", "without links"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways in which a file gets its name, as the file system can."""

    def cannot(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    if request.param == "without links":
        monkeypatch.setattr(os, "link", cannot)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("nothing")
    (tmp_path / "folder").mkdir()
    for name in ("mine", "link", "folder"):
        path = tmp_path / name
        for action in (lambda p: writing.write_new(p, "new"), writing.check_new):
            assert "is not overwritten" in refusal(lambda: action(path))  # noqa: B023
    assert (tmp_path / "mine").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "link", "mine"]
    path = writing.write_fresh(tmp_path, "mine", "", "new")
    assert (path.name, path.read_text()) == ("mine-2", "new")
    assert writing.write_fresh(tmp_path, "link", "", "new").name == "link-2"
    assert writing.write_fresh(tmp_path, "mine", "", "new").name == "mine-2"
    (tmp_path / "to mine").symlink_to("mine")
    assert writing.write_fresh(tmp_path, "to mine", "", "mine").name == "to mine-2"


@pytest.mark.usefixtures("way")
def test_an_earlier_version_is_replaced_and_its_neighbours_are_not(tmp_path: Path) -> None:
    path = tmp_path / "c"
    names = ("c.part", ".c.part", "c.tmp", "c~")
    for name in names:
        (tmp_path / name).write_text("mine")
    for content in (b"one", b"two"):
        writing.replace(path, content, b"!")
        assert path.read_bytes() == content + b"!"
    assert {(tmp_path / name).read_text() for name in names} == {"mine"}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(("c", *names))
    (tmp_path / "folder").mkdir()
    refusal(lambda: writing.replace(tmp_path / "folder", b""))
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.usefixtures("way")
def test_a_full_disk_leaves_nothing_new(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        said = [
            refusal(lambda: writing.write_new(tmp_path / "new", "x" * 10_000)),
            refusal(lambda: writing.write_fresh(tmp_path, "new", "", "x" * 10_000)),
            refusal(lambda: writing.replace(tmp_path / "old", b"x" * 10_000)),
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert all("File too large" in text for text in said)
    assert [p.name for p in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "old"


WRITER = """
import os, signal, sys
from pathlib import Path
from kvproof.model.files.writing import replace, write_new

folder, left = Path(sys.argv[1]), int(sys.argv[2])

def count() -> None:
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

def watched(call):
    def calling(*given, **named):
        count()
        answer = call(*given, **named)
        count()
        return answer
    return calling

for name in ("fsync", "link", "replace", "unlink"):
    setattr(os, name, watched(getattr(os, name)))
replace(folder / "replaced", b"new" * 1000)
write_new(folder / "new", "x" * 1000)
"""
"""Writes two files, and is killed before or after one of the calls that make a file."""


def test_a_writer_that_is_killed_anywhere_leaves_whole_files(tmp_path: Path) -> None:
    kept = tmp_path / "replaced"
    seen = set()
    for calls in range(100):
        kept.write_bytes(b"old" * 1000)
        done = subprocess.run([sys.executable, "-c", WRITER, str(tmp_path), str(calls)])
        seen.add((kept.read_bytes()[:3], (tmp_path / "new").exists()))
        assert kept.read_bytes() in (b"old" * 1000, b"new" * 1000)
        for path in tmp_path.glob("new"):
            assert path.read_text() == "x" * 1000
            path.unlink()
        if not done.returncode:
            break
        assert done.returncode == -signal.SIGKILL
    assert seen == {(b"old", False), (b"new", False), (b"new", True)}


def test_a_part_that_a_killed_process_left_is_removed_a_day_later(tmp_path: Path) -> None:
    old, young, folder = (tmp_path / f".kvproof-{name}.part" for name in ("old", "young", "folder"))
    (tmp_path / "mine.part").touch()
    young.touch()
    old.touch()
    (folder / "inside").mkdir(parents=True)
    for path in (old, folder, tmp_path / "mine.part"):
        os.utime(path, (0, 0))
    writing.write_new(tmp_path / "new", "x")
    assert {path.name for path in tmp_path.iterdir()} == {"new", young.name, "mine.part"}
