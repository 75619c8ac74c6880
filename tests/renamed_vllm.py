"""vLLM as it would be if an attribute had another name: a folder of links to the installed one, and
files written anew where they say the name."""

import importlib.util
import re
from pathlib import Path


def renamed(folder: Path, old: str, new: str) -> Path:
    """The folder, with a `vllm` whose modules of `v1` say `new` for `old`. Nothing is imported."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    home, word = Path(spec.origin).parent, re.compile(rf"\b{old}\b")
    saying = {path for path in (home / "v1").rglob("*.py") if word.search(path.read_text("utf-8"))}
    assert saying
    opened = {parent for path in saying for parent in path.parents if parent.is_relative_to(home)}
    for inside in sorted(opened):
        (folder / "vllm" / inside.relative_to(home)).mkdir(parents=True)
        for each in inside.iterdir():
            place = folder / "vllm" / each.relative_to(home)
            if each in saying:
                place.write_text(word.sub(new, each.read_text("utf-8")), encoding="utf-8")
            elif each not in opened and each.name != "__pycache__":
                place.symlink_to(each)
    return folder
