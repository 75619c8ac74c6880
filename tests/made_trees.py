"""Made-up vLLMs of a few lines: enough to be compared, and nothing that can be driven."""

from pathlib import Path

POOL = '''"""The blocks."""


class BlockPool:
    """A pool."""

    def free(self, blocks):
        """Free blocks."""
        return list(blocks)
'''
"""A module that is a part of the accounting."""

CHANGED = POOL.replace("list(blocks)", "list(reversed(blocks))")

SAME = ("gate", "--vllm", "base", "--base", "base", "--cache", "cache")
"""The gate with one tree as base and head: UNCHANGED, in less than a second."""

DIFFERENT = ("gate", "--vllm", "head", "--base", "base", "--cache", "cache")
"""The gate with trees that differ: UNKNOWN, because neither can be driven."""


def tree(folder: Path, pool: str = POOL, *, begins: str = "", config: str | None = None) -> Path:
    """A tree of vLLM in a folder: its block pool, what its `__init__.py` does, and its module
    `config`, if any. Returns the folder."""
    core = folder / "vllm" / "v1" / "core"
    core.mkdir(parents=True)
    for package in (core, core.parent):
        (package / "__init__.py").touch()
    (folder / "vllm" / "__init__.py").write_text(begins, encoding="utf-8")
    (core / "block_pool.py").write_text(pool, encoding="utf-8")
    if config is not None:
        (folder / "vllm" / "config.py").write_text(config, encoding="utf-8")
    return folder


def base_and_head(folder: Path, pool: str = CHANGED, *, begins: str = "") -> None:
    """The folders `base` and `head` in a folder. The block pool of head is this one."""
    tree(folder / "base", begins=begins)
    tree(folder / "head", pool, begins=begins)
