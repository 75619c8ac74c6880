"""What a user sees of each finding on real engines, as released and with its patch.

The cheapest run everywhere. The others are marked slow: `make findings` runs them all.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.findings.inside import FINDINGS
from tests.engine.findings.shown import Shown, started

HERE = Path(__file__).parent / "findings"
NAMES = sorted(path.name for path in FINDINGS.iterdir() if (HERE / f"{path.name}.py").exists())


def shown(name: str) -> Shown:
    """How a finding is shown."""
    found: Shown = importlib.import_module(f"tests.engine.findings.{name}").SHOWN
    return found


def cases() -> Iterator[object]:
    """The findings, each with its mark."""
    for name in NAMES:
        yield pytest.param(name, marks=[pytest.mark.slow] if shown(name).slow else [])


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models."""
    return tmp_path_factory.mktemp("models")


pytestmark = [pytest.mark.live, pytest.mark.engine]


@pytest.mark.parametrize("name", cases())
def test_a_user_sees_it_and_the_sanitizer_names_it(name: str, models: Path) -> None:
    """A finding that the sanitizer does not name has no names here; its page says so."""
    with started(shown(name), name, models, patched=False, mode="record") as engines:
        wrong = [each for each in shown(name).look(engines) if (each.got != each.right) != each.wrong]
        found = {which for each in engines.values() for which in each.inside("found")}
    assert wrong == []
    assert found == set(shown(name).named)


@pytest.mark.parametrize("name", cases())
def test_a_user_does_not_see_it_with_the_patch(name: str, models: Path) -> None:
    with started(shown(name), name, models, patched=True, mode="record") as engines:
        assert [each for each in shown(name).look(engines) if each.got != each.right] == []
        assert [each.inside("found") for each in engines.values()] == [[] for _ in engines]
