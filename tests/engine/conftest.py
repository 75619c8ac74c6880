"""Engines that serve without the sanitizer and with each of its modes, once for each device."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import lent
from tests.engine.process import OPTIONS, Process
from tests.engine.workloads import Served, serve

DEVICES: dict[str, dict[str, Any]] = {
    "cpu": OPTIONS,
    "cuda": OPTIONS | {"dtype": "bfloat16", "kv_cache_memory_bytes": 2**28},
}
"""On a GPU the size of the cache is given: where vLLM measures it, several engines that start at
once disturb each other."""


def need_cuda() -> None:
    """Skip a test where there is no GPU."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")


class Run(NamedTuple):
    """What the engines of one process answered."""

    served: dict[str, Served]
    process: Process


class Runs:
    """The runs on one device by the mode of the sanitizer. Each is done when it is first asked
    for."""

    def __init__(
        self, options: dict[str, Any], folder: Path, inherited: Mapping[str, str] | None
    ) -> None:
        self.options = options
        self.inherited = inherited
        self.folder = folder
        self.of = cache(self._of)

    def _of(self, mode: str | None) -> Run:
        scratch = self.folder / f"store-{mode}"
        return Run(*serve(self.options, mode, self.folder, scratch, self.inherited))


ON_CPU = [pytest.mark.live, pytest.mark.engine, pytest.mark.nightly]


@pytest.fixture(
    scope="module",
    params=[pytest.param("cpu", marks=ON_CPU), pytest.param("cuda", marks=pytest.mark.gpu)],
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The runs on a device."""
    device = request.param
    if device == "cuda":
        need_cuda()
    inherited = None if device == "cpu" else lent.BEFORE
    return Runs(DEVICES[device], tmp_path_factory.mktemp("models"), inherited)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models."""
    return tmp_path_factory.mktemp("models")
