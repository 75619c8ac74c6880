"""Engines that serve without the sanitizer and with each of its modes, once for each device."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engine.process import OPTIONS, Process
from tests.engine.workloads import Served, serve

DEVICES: dict[str, dict[str, Any]] = {
    "cpu": OPTIONS,
    "cuda": OPTIONS | {"dtype": "bfloat16", "gpu_memory_utilization": 0.2},
}


class Run(NamedTuple):
    """What the engines of one process answered."""

    served: dict[str, Served]
    process: Process


class Runs:
    """The runs on one device by the mode of the sanitizer. Each is done when it is first asked
    for."""

    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.of = cache(self._of)

    def _of(self, mode: str | None) -> Run:
        return Run(*serve(self.options, mode, self.folder, self.folder / f"store-{mode}"))


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The runs on the device that the module names."""
    return Runs(DEVICES[request.module.DEVICE], tmp_path_factory.mktemp("models"))
