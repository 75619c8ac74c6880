"""`kvproof doctor`: what it says of a vLLM that is there, is not there, or is there in part."""

import json
import sys
from collections.abc import Iterator

import pytest

from kvproof.cli.main import main
from kvproof.live.contract.features import FEATURES
from tests.processes import python
from tests.watching import LATER

DRIVEN = sum(feature.drives for feature in FEATURES.values())

WITHOUT_FEATURES = """
import sys
import types

from kvproof.live import contract_check as contract
from kvproof.live.contract.table import TABLE

places = [(e.feature, p.module, p.names[0]) for e in TABLE for p in e.places if p.names]
core = {(module, name) for feature, module, name in places if feature == "core"}


class Without(types.ModuleType):
    def __init__(self, real):
        super().__init__(real.__name__)
        self.real = real

    def __getattr__(self, name):
        if (self.__name__, name) in gone:
            raise AttributeError(f"there is no {name}")
        return getattr(self.real, name)


contract.check()  # imports all of it
gone = {(module, name) for _, module, name in places} - core
for name in {module for module, _ in gone} & set(sys.modules):
    sys.modules[name] = Without(sys.modules[name])
contract.check.cache_clear()
for builder in list(sys.modules):
    if builder.startswith("kvproof.live") and "contract" not in builder:
        del sys.modules[builder]

from kvproof.cli.main import main

codes = [
    main(["sample", "--machine", "live", "--config", name, "--examples", "2", "--steps", "9"])
    for name in ("full", "window", "events", "pd-full", "store")
]
print(*codes)
"""


def test_without_vllm_nothing_can_be_driven(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert main(["doctor"]) == 3
    assert capsys.readouterr().out.startswith("vLLM cannot be imported. Use make live")
    assert main(["doctor", "--json"]) == 3
    printed = capsys.readouterr().out
    said = json.loads(printed)
    assert said["vllm"] == {"version": None, "path": None}
    assert [feature["drivable"] for feature in said["features"]] == [False] * len(FEATURES)


@pytest.fixture
def _real_again() -> Iterator[None]:
    from kvproof.live.contract_check import check

    check.cache_clear()
    yield
    check.cache_clear()


@pytest.mark.live
@pytest.mark.usefixtures("_real_again")
def test_all_but_what_came_later_can_be_driven(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out.splitlines()
    later = [f for f in LATER if f"{f} cannot be driven: " in " ".join(shown)]
    assert shown[-1] == f"{DRIVEN - len(later)} of {DRIVEN} features can be driven."
    assert all(len(line) <= 80 for line in shown if not line.startswith("vLLM "))
    assert ("MISSING" in " ".join(shown)) == bool(later)


@pytest.mark.live
@pytest.mark.usefixtures("_real_again")
def test_a_renamed_class_costs_its_feature_and_the_features_that_need_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vllm.v1 import kv_cache_interface

    monkeypatch.delattr(kv_cache_interface, "MambaSpec")
    assert main(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    lost = [feature["name"] for feature in said["features"] if not feature["drivable"]]
    needing = ["states", "partial hits", "connector kit", "start-up", "engine loop", "pooling"]
    needing += ["repetition"]
    assert [feature for feature in lost if feature not in LATER] == needing
    [entry] = [e for e in said["entries"] if e["name"] == "MambaSpec"]
    assert entry["found"] is None
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "states cannot be driven: missing: MambaSpec, " in shown
    assert "partial hits cannot be driven: it needs states." in shown


@pytest.mark.nightly
@pytest.mark.live
def test_what_needs_nothing_that_is_missing_goes_on() -> None:
    """All that single features need is taken out before the adapter itself is imported."""
    done = python("-c", WITHOUT_FEATURES)
    assert done.stdout.splitlines()[-1] == "0 3 3 3 3", done.stdout + done.stderr
    assert "Traceback" not in done.stderr
