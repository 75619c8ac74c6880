"""A mistake in vLLM that reaches its engine core in a process of its own, as a plugin of vLLM does.

`environment` is for the process of `tests.engine.process`; the rest is called in it.
"""

import os
from pathlib import Path
from typing import Any

from kvproof.watch import switch
from tests.engine import mistakes
from tests.engine.process import ROOT

MISTAKE = "PLANTED_MISTAKE"
"""The variable that names the mistake for the next engine core."""


def environment(folder: Path) -> dict[str, str]:
    """The environment in which vLLM finds the plugin, which is written into a folder."""
    info = folder / "planted-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 0\n")
    point = "[vllm.general_plugins]\nplanted = tests.engine.planting:plant\n"
    (info / "entry_points.txt").write_text(point)
    paths = (str(folder), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    records = {"KVPROOF_DIR": str(folder / "records")}
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **records}


def plant() -> None:
    """The plugin: it changes nothing where no mistake is named."""
    if name := os.environ.get(MISTAKE):
        mistakes.plant(None, name)


def choose(_llm: Any, name: str) -> None:
    """The mistake of the engine cores that are started from now on."""
    os.environ[MISTAKE] = name


def end(llm: Any, number: int) -> None:
    """Send a signal to each engine core, and wait until it has ended."""
    for process in llm.llm_engine.engine_core.resources.engine_manager.processes:
        os.kill(process.pid, number)
        process.join()


def watch(_: Any, mode: str) -> None:
    """Switch the sanitizer on in this process, as its environment does: the engines that are built
    from now on are watched."""
    os.environ[switch.VARIABLE] = mode
    switch.plugin()
