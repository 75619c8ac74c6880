"""The same on CUDA."""

from pathlib import Path

import pytest

from tests.engine.comparisons import changes_nothing
from tests.engine.process import OPTIONS
from tests.engine.workloads import KINDS

ON_CUDA = OPTIONS | {"dtype": "bfloat16", "gpu_memory_utilization": 0.2}

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, scope="module")
def _cuda() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")


@pytest.mark.parametrize("kind", KINDS)
def test_the_sanitizer_changes_nothing(kind: str, tmp_path: Path) -> None:
    changes_nothing(KINDS[kind], ON_CUDA, ["record", "raise"], tmp_path)
