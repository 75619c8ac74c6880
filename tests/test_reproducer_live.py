"""A reproducer of a mistake that is planted in a copy of the installed vLLM: it fails there, and
passes on the vLLM as it is."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from kvproof.live import reproducer
from kvproof.model.because import About
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.finding import Finding
from kvproof.model.traces.trace import Trace
from tests.reasons import said

RIGHT, WRONG = "            block.ref_cnt += 1\n", "            block.ref_cnt += 2\n"
"""A line of `BlockPool.touch`, and the mistake: a hit counts twice."""


@pytest.fixture
def head(tmp_path: Path) -> dict[str, str]:
    """The environment of a tree with the mistake. Its other files are links."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vLLM is not installed")
    installed, site = Path(found.origin).parent, tmp_path / "site"
    shutil.copytree(installed, site / "vllm", copy_function=os.symlink)
    pool = site / "vllm" / "v1" / "core" / "block_pool.py"
    text = pool.read_text(encoding="utf-8")
    start = text.index("    def touch(")
    assert RIGHT in text[start:]
    pool.unlink()
    pool.write_text(text[:start] + text[start:].replace(RIGHT, WRONG, 1), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(site), "VLLM_TARGET_DEVICE": "cpu"}


@pytest.mark.live
@pytest.mark.slow  # the gate on real vLLM in test_gate_live writes one too
def test_it_fails_on_head_and_passes_on_base(head: dict[str, str], tmp_path: Path) -> None:
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=6)
    jobs = (Job("r0", "abcde", 3), Job("r1", "abcdx", 3))
    events = (
        *(Submit("E", "r0"), Schedule("E"), Complete("E")),
        *(Submit("E", "r1"), Schedule("E")),
    )
    finding = Finding(
        "references_are_exact",
        said("2 references of block 1 are in tables", "it counts 3"),
        About("E", block=1),
    )
    trace = Trace(Cluster("two", (engine,), jobs), events, finding=finding, machine="live")
    base = {**os.environ, "VLLM_TARGET_DEVICE": "cpu"}
    made = reproducer.write(trace, head, base, tmp_path / "out", "counts twice")
    assert isinstance(made, reproducer.Reproducer), made
    assert (made.head, made.base) == ("fails", "passes")
    assert made.path == tmp_path / "out" / "test_counts_twice.py"
    assert made.path.read_text(encoding="utf-8") == made.text
    assert "assert miscounted(scheduler) == []" in made.text
    assert [path.name for path in made.path.parent.iterdir()] == [made.path.name]
