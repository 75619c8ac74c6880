"""A reproducer with a `patch` runs twice: on vLLM as it is released, and with its patch. The others
have a diff on their page, and no engine is run with it."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the case `[patched]` of a reproducer without a `patch`."""
    items[:] = [item for item in items if not _has_no_patch(item)]


def _has_no_patch(item: pytest.Item) -> bool:
    ours = isinstance(item, pytest.Function) and "code" in item.fixturenames
    return ours and "[patched" in item.name and not hasattr(item.module, "patch")


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the reproducer's `patch` in the case `[patched]`."""
    if request.param == "patched":
        request.module.patch(monkeypatch)
