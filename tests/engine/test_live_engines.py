"""Real engines on the CPU answer alike with and without the sanitizer, which finds nothing."""

from pathlib import Path

import pytest

from tests.engine.comparisons import changes_nothing
from tests.engine.process import OPTIONS
from tests.engine.workloads import KINDS

pytestmark = [pytest.mark.live, pytest.mark.engine]

MODES = {
    "full": ("record", "warn", "raise"),
    "window": ("raise",),
    "mamba": ("raise",),
    "drafts": ("raise",),
    "store": ("raise",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_sanitizer_changes_nothing(kind: str, tmp_path: Path) -> None:
    changes_nothing(KINDS[kind], OPTIONS, MODES[kind], tmp_path)
