"""A reproducer with a `patch` runs twice: on vLLM as it is released, and with its patch. The others
have a diff on their page, and no engine is run with it."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make only the case `[released]` of a reproducer without a `patch`."""
    if not hasattr(metafunc.module, "patch"):
        metafunc.parametrize("code", ["released"], indirect=True)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the reproducer's `patch` in the case `[patched]`."""
    if request.param == "patched":
        request.module.patch(monkeypatch)
