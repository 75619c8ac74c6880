"""The planted changes of vLLM: one row each in mistakes.json, and a tree of vLLM that has it.

A row names a function, what its change does (`about`), and the lines that stand there instead
(`old`, `new`). Functions come from the draw of `chooser.py`, in its order; a drawn function in
which nothing of its kind can be planted has the reason instead (`passed_over`). Some rows are no
part of the draw: those that take a mend of vLLM's history back (`mended`), and changes of policy at
the place that decides (`decides`).
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.planted.chooser import KINDS, Function, body_of, drawn

HERE = Path(__file__).parent


class Mistake(NamedTuple):
    """A planted change: `old` lines of a function of vLLM are replaced by `new` ones."""

    kind: str
    function: Function
    about: str
    old: str
    new: str
    mended: str = ""
    decides: str = ""
    """The pull request that is taken back, or what is decided otherwise; empty if it was drawn."""
    breaks: str = ""
    """The check that a change of policy breaks after all; `shown` says how that was seen."""
    shown: str = ""

    @property
    def name(self) -> str:
        """The name that `--only` takes."""
        last = self.mended or self.decides or self.function.name.rpartition(".")[2]
        return f"{self.kind}/{last}"

    @property
    def digest(self) -> str:
        """What tells two changes of one name apart."""
        return hashlib.sha256(f"{self.function}{self.old}{self.new}".encode()).hexdigest()[:12]


def rows() -> list[dict[str, Any]]:
    """All rows of mistakes.json."""
    found: list[dict[str, Any]] = json.loads((HERE / "mistakes.json").read_text(encoding="utf-8"))
    return found


def mistakes() -> list[Mistake]:
    """All planted changes, those of one kind together."""
    found = [
        Mistake(
            row["kind"],
            Function(row["file"], row["function"]),
            row["about"],
            "\n".join(row["old"]),
            "\n".join(row["new"]),
            row.get("mended", ""),
            row.get("decides", ""),
            row.get("breaks", ""),
            row.get("shown", ""),
        )
        for row in rows()
        if "old" in row
    ]
    return sorted(found, key=lambda mistake: KINDS.index(mistake.kind))


def changed(mistake: Mistake, package: Path) -> str:
    """The source of a file of vLLM with a planted change. The old lines stand once in the
    function."""
    source = (package / mistake.function.file).read_text(encoding="utf-8")
    first, last = body_of(source, mistake.function)
    lines = source.splitlines(keepends=True)
    body = "".join(lines[first - 1 : last])
    if body.count(mistake.old) != 1:
        raise ValueError(f"{mistake.name}: the old lines stand {body.count(mistake.old)} times")
    new = body.replace(mistake.old, mistake.new)
    return "".join([*lines[: first - 1], new, *lines[last:]])


def plant(mistake: Mistake, package: Path, folder: Path) -> None:
    """Make a site-packages folder with vLLM and a planted change."""
    tree_with(package, folder, mistake.function.file, changed(mistake, package))


def tree_with(package: Path, folder: Path, changed_file: str, source: str) -> None:
    """Make a site-packages folder with vLLM in which one file has another source. All other files
    are links."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, folder / "vllm", copy_function=os.link, symlinks=True, ignore=ignored)
    for info in package.parent.glob("vllm*.dist-info"):
        shutil.copytree(info, folder / info.name)
    file = folder / "vllm" / changed_file
    file.unlink()  # a link to the file of the original
    file.write_text(source, encoding="utf-8")


def out_of_order(package: Path, seed: int = 0) -> Iterator[str]:
    """The rows that do not follow the draw. A function that has been named since is no fault."""
    for kind in KINDS:
        draw = drawn(package, kind, seed)
        followed = [
            Function(row["file"], row["function"])
            for row in rows()
            if row["kind"] == kind and not ("mended" in row or "decides" in row)
        ]
        still = [function for function in followed if function in draw]
        yield from _apart(kind, still, draw)


def _apart(kind: str, followed: list[Function], draw: Iterable[Function]) -> Iterator[str]:
    """The functions of a kind that stand elsewhere than in the draw."""
    for row, function in zip(followed, draw, strict=False):
        if row != function:
            yield f"{kind}: {row} stands where the draw has {function}"
            return
