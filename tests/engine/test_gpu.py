"""The same on a GPU."""

import pytest

from tests.engine.comparisons import is_content, is_served, is_unchanged
from tests.engine.conftest import Runs

DEVICE = "cuda"

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, scope="module")
def _cuda() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")


def test_the_work_is_hard(runs: Runs) -> None:
    for name, each in runs.of(None).served.items():
        is_served(name, each)


@pytest.mark.parametrize("mode", ["record", "warn", "raise"])
def test_the_sanitizer_changes_nothing(runs: Runs, mode: str) -> None:
    served, process = runs.of(mode)
    is_content(process)
    for name, plain in runs.of(None).served.items():
        is_unchanged(name, plain, served[name])
