"""A reproducer with a `patch` runs twice: on vLLM as it is released, and with its patch. The others
have a diff on their page."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the case `[patched]` of a reproducer without a `patch`."""
    items[:] = [item for item in items if _is_there(item)]


def _is_there(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or "[patched" not in item.name:
        return True
    return "code" not in item.fixturenames or hasattr(item.module, "patch")


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the reproducer's `patch` in the case `[patched]`."""
    if request.param == "patched":
        request.module.patch(monkeypatch)
