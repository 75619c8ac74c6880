"""Each reproducer runs twice: on vLLM as it is released, and with its own `patch`."""

import pytest


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the reproducer's `patch` in the case `[patched]`."""
    if request.param == "patched":
        request.module.patch(monkeypatch)
