"""What a user sees of each finding on real engines, as released and with its patch."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine.findings import alone, copies, events, pairs, sessions, stores  # noqa: F401
from tests.engine.findings.shown import SHOWN, arms
from tests.engine.process import OPTIONS, Process

pytestmark = [pytest.mark.live, pytest.mark.engine, pytest.mark.nightly]


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_a_user_sees_it_without_the_patch_alone(name: str, models: Path) -> None:
    """The sanitizer finds what the page of the finding says, and no more with the patch."""
    how = SHOWN[name]
    if len(how.engines) > 1 and find_spec("nixl") is None:
        pytest.skip("nixl is not installed")
    released, patched = arms(how, name, models)
    assert [each for each in released.seen if (each.got != each.right) != each.wrong] == []
    assert any(each.wrong for each in released.seen)
    assert [each for each in patched.seen if each.got != each.right] == []
    assert released.found == set(how.named) | set(how.beside)
    assert patched.found == {*how.beside, *how.of_patch}


def test_a_pool_that_cannot_hold_a_request_is_refused_at_start(models: Path) -> None:
    """So `impossible_fit_waits` is not seen on an engine."""
    small = {"max_model_len": 192, "mamba_cache_mode": "align", "num_gpu_blocks_override": 8}
    with Process(models) as process:
        error = process.take(["engine", "mamba", OPTIONS | small]).error
    assert error is not None
    assert "ValueError" in error
