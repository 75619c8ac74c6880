"""The mirror of a tree: links in the cache folder that a process imports in place of the tree.

Python keeps its compiled bytecode beside a file, and so in the mirror. vLLM asks the metadata of
the package `vllm` whether it is a CPU build, so the mirror has metadata that say so. The compiled
parts of an installed vLLM serve trees that have none. The links lie in a folder `site-packages`:
Hypothesis reads all code elsewhere in search of constants, and would draw other numbers on each
tree.
"""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

import kvproof
from kvproof.live.availability import NO_VERSION, ORIGIN, UNKNOWN_VERSION
from kvproof.model.errors import UsageError
from kvproof.model.files.folders import appear, folder_errors, made_folder, part_of
from kvproof.model.files.reading import read_bytes, shown
from kvproof.model.files.writing import write_new

NOT_BUILT = """\
__version__ = version = "dev"
__version_tuple__ = version_tuple = (0, 0, "dev")
__commit_id__ = commit_id = None
"""
"""`vllm/_version.py`, which a build writes: what vLLM assumes without it, without its warning."""


def mirrored(
    package: Path, version: str, cache: Path, wheel: Path | None, packages: tuple[Path, ...] = ()
) -> Path:
    """The folder `site-packages` of the mirror of a package, made if missing. A package without
    compiled parts gets those of the wheel's package. Where one of the folders with what it needs
    has a kvproof too, the mirror has a link to this one, and a child process runs no other. Raises
    UsageError where it cannot be made, or where the package cannot be read."""
    links = dict(files(package))
    built = any(name.endswith(COMPILED) for name in links)
    if wheel is not None and not built:
        folders = {os.path.dirname(name) for name in links}
        parts = compiled(wheel).items()
        links |= {name: part for name, part in parts if os.path.dirname(name) in folders}
    texts = {"METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {for_cpu(version)}\n"}
    beside = [*(package if built or wheel is None else wheel).parent.glob("vllm*.libs")]
    if any((folder / "kvproof").is_dir() for folder in packages):
        beside.append(Path(kvproof.__file__).parent)
    digest = hashlib.sha256(repr((package, texts, beside)).encode())
    for name, path in sorted(links.items()):
        digest.update(os.fsencode(f"{name}\n{path}\n"))
    folder = made_folder(cache / "trees") / digest.hexdigest()[:16]
    if not folder.is_dir():
        remove_orphans(folder.parent)
        with part_of(folder) as part:
            _fill(part, package, links, texts)
            _link_beside(part, beside)
            appear(part, folder)
    return folder / "site-packages"


def remove_orphans(mirrors: Path) -> None:
    """Remove the mirrors of packages that are gone. No process uses one, because its links lead
    nowhere."""
    for origin in mirrors.glob(f"*/{ORIGIN}"):
        with suppress(UsageError):
            if not Path(os.fsdecode(read_bytes(origin, "mirror"))).exists():
                shutil.rmtree(origin.parent, ignore_errors=True)


def _fill(part: Path, package: Path, links: dict[str, Path], texts: dict[str, str]) -> None:
    site = part / "site-packages"
    described = made_folder(site / f"vllm-{NO_VERSION}.dist-info")
    with folder_errors(site):
        for name in sorted({os.path.dirname(name) for name in links}):
            (site / "vllm" / name).mkdir(parents=True, exist_ok=True)
        for name, target in links.items():
            os.symlink(target, site / "vllm" / name)
    if "_version.py" not in links:
        write_new(site / "vllm" / "_version.py", NOT_BUILT)
    for name, text in texts.items():
        write_new(described / name, text)
    write_new(part / ORIGIN, os.fsencode(package))


def _link_beside(part: Path, folders: Sequence[Path]) -> None:
    """Link folders beside the package, such as the libraries of a wheel: compiled parts look for
    them relative to the place from which they are loaded."""
    for folder in folders:
        with folder_errors(part):
            os.symlink(folder, part / "site-packages" / folder.name)


def for_cpu(version: str) -> str:
    """A version written as that of a CPU build."""
    if version == UNKNOWN_VERSION:
        version = NO_VERSION
    public, _, local = version.partition("+")
    parts = [part for part in re.split(r"[._-]", local) if part and part != "cpu"]
    return f"{public}+{'.'.join([*parts, 'cpu'])}"


COMPILED = (*EXTENSION_SUFFIXES, ".so")
"""The ends of the names of compiled parts."""

LEFT_OUT = ("__pycache__", ".git")


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The regular files in a folder: path relative to the folder, and real path, in the order of
    their names. Linked folders are followed, unless they lead back to a folder above. Raises
    UsageError where a folder cannot be read."""
    yield from _files(os.path.realpath(folder), "", ())


def _files(folder: str, relative: str, above: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    if folder in above:
        return
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(
            f"The folder {shown(folder)} cannot be read ({error.strerror}). "
            "Use a vLLM whose folders you may read."
        ) from error
    for entry in entries:
        if entry.name in LEFT_OUT or entry.name.endswith(".pyc"):
            continue
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        if entry.is_dir():
            yield from _files(real, f"{relative}{entry.name}/", (*above, folder))
        elif entry.is_file():
            yield f"{relative}{entry.name}", Path(real)


def compiled(folder: Path) -> dict[str, Path]:
    """The compiled parts in a folder, by relative path."""
    return {name: path for name, path in files(folder) if name.endswith(COMPILED)}


def wheel() -> Path | None:
    """The package of the first vLLM on the path that has compiled parts and is no mirror; None
    where there is none."""
    return next((package for package in _packages() if _is_built(package)), None)


def _packages() -> Iterator[Path]:
    """The packages that this environment has: those on the path, and those of editable installs,
    which have a finder each."""
    for folder in sys.path:
        spec = PathFinder.find_spec("vllm", [folder])
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent
    for finder in sys.meta_path:
        spec = None if finder is PathFinder else finder.find_spec("vllm", None)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent


def _is_built(package: Path) -> bool:
    mirror = (package.parent.parent / ORIGIN).is_file()
    return not mirror and any(path.name.endswith(COMPILED) for path in package.iterdir())
