"""The contract of the adapter: whatever is missing of vLLM makes the verdict UNKNOWN, and names it.

Entries are taken out of the real vLLM, as a release would that renamed them.
"""

import ast
import functools
import json
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.cli.main import main
from kvproof.live import contract_check as contract
from kvproof.live import contract_samples as samples
from kvproof.live.contract.entry import Entry
from kvproof.live.contract.features import used_by
from kvproof.live.contract.table import TABLE
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.engine import given
from kvproof.model.plans.messages import Send
from kvproof.model.plans.random_engines import random_engine
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from tests.removed_entries import remove
from tests.watching import LATER

pytestmark = pytest.mark.live

USES = {name: used_by(cluster) for name, cluster in (*CLUSTERS.items(), *LIVE_CLUSTERS.items())}


def shown_by(feature: str) -> str:
    """The preset that uses a feature, and few others beside it."""
    return min((len(uses), name) for name, uses in USES.items() if feature in uses)[1]


HERE = [entry for entry in TABLE if entry.feature not in LATER]
"""What every vLLM has that these tests run on."""

LIVE = Path(samples.__file__).parent
KIT = LIVE / "connectors"
REPLACES = LIVE / "fakes" / "replaced.py"
FRONT = LIVE / "core" / "front.py"
"""Its names are not looked up before each run, because that would import a server. Where one is
missing, requests that the front refuses are left out."""
ROOTS = {
    *("scheduler", "live", "manager", "coordinator", "pool", "block_pool", "publisher"),
    *("connector", "connector_scheduler", "producer", "output", "meta", "request_status"),
}
"""What files of the adapter call objects of vLLM."""

OF_KIT = {"calls", "moved", "kv_cache_config", "vllm_config"}
"""What files of the connector kit call other ones."""

NOT_OF_VLLM = {"keys", "values", "get", "items", "name", "engine", "loads"}
"""Python's names, and those of our own connector."""


@functools.cache
def import_whole() -> None:
    """Import all that the contract looks at while vLLM is whole."""
    import kvproof.live.core.starts  # noqa: F401

    contract.check()


@pytest.fixture
def _real_again() -> Iterator[None]:
    """The contract is looked up anew, and again when vLLM has been put together again."""
    import_whole()
    contract.check.cache_clear()
    yield
    contract.check.cache_clear()


def sampled(preset: str, capsys: pytest.CaptureFixture[str], episodes: int = 1) -> tuple[int, str]:
    """The exit code of a short run of real vLLM, and its verdict with the reason."""
    command = ["sample", "--machine", "live", "--config", preset, "--json"]
    code = main([*command, "--examples", str(episodes), "--steps", "8"])
    said = json.loads(capsys.readouterr().out)
    return code, f"{said['verdict']}: {said.get('reason', said.get('reasons', ''))}"


def played_without(capsys: pytest.CaptureFixture[str]) -> str:
    command = ["connector", "tests.connectors.store:Store", "--examples", "1", "--json"]
    assert main(command) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "UNKNOWN"
    return str(said["reason"])


def watched_without(_: object) -> str:
    from kvproof.watch.watching import Watching

    said: list[str] = []
    watching = Watching("record", said.append)
    watching.attach(samples.sample("Scheduler"))
    assert not watching.judges
    assert f"UNKNOWN: 1 engine was not watched: {said[0].split(': ', 1)[1]}" in watching.summary()
    return "\n".join(said)


def started_without(_: object) -> str:
    from kvproof.live.core.engine import Engine

    with pytest.raises(AdapterDrift) as drift:
        Engine(random_engine(0), (), None)
    return str(drift.value)


def looped_without(_: object, *sent: Send, pools: bool = False) -> str:
    from kvproof.live.core.starts import carried_out

    with pytest.raises(AdapterDrift) as drift:
        carried_out(msgspec.structs.replace(given(sent), pools=pools))
    return str(drift.value)


WITHOUT: dict[str, Callable[[Any], str]] = {
    "connector kit": played_without,
    "engine core": played_without,
    "start-up": started_without,
    "engine loop": looped_without,
    "pooling": functools.partial(looped_without, pools=True),
    "repetition": lambda _: looped_without(_, Send(0, "r0", 0, 3, 4, repeats=2)),
    "watching": watched_without,
}
"""How each part that is apart from a cluster says that it does not fit."""


@pytest.mark.usefixtures("_real_again")
@pytest.mark.parametrize("entry", HERE, ids=lambda e: f"{e.feature}-{e.name}")
def test_without_an_entry_the_verdict_is_unknown_and_names_it(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import kvproof.live.core.starts  # noqa: F401 (what it imports may be removed below)

    with monkeypatch.context() as patch:
        remove(entry, patch)
        if without := WITHOUT.get(entry.feature):
            said = without(capsys)
        else:
            episodes = 10 if entry.feature == "embeddings" else 1
            code, said = sampled(shown_by(entry.feature), capsys, episodes)
            assert code == 3
            assert said.startswith("UNKNOWN: ")
    # A module that is missing is named by what is needed of it.
    module = entry.feature == "watching" and "no EngineCore.shutdown" in said
    assert f" no {entry.name}" in said or module
    assert "kvproof doctor" in said


@pytest.mark.usefixtures("_real_again")
def test_a_wrapper_that_passes_on_what_it_gets_is_no_drift(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As people wrap methods, without functools.wraps: nobody sees the parameters then."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler

    def wrapped(method: Any) -> Any:
        return lambda *args, **kwargs: method(*args, **kwargs)

    for owner, name in ((Scheduler, "__init__"), (KVCacheManager, "allocate_slots")):
        monkeypatch.setattr(owner, name, wrapped(getattr(owner, name)))
    missing = {look.entry.feature for look in contract.check().looks if look.place is None}
    assert missing <= set(LATER)
    code, said = sampled("full", capsys)
    assert (code, said[:7]) == (0, "SAMPLED"), said


@pytest.mark.nightly
@pytest.mark.usefixtures("_real_again")
def test_where_the_check_is_by_passed_no_engine_is_said_to_be_dead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a constructor sets, and has another name, comes up while vLLM runs."""
    codes = []
    for entry in HERE:
        if entry.feature in WITHOUT or entry.places[0].how != "object":
            continue
        with monkeypatch.context() as patch:
            patch.setattr(contract.Contract, "require", lambda _self, _features: None)
            remove(entry, patch)
            code, said = sampled(shown_by(entry.feature), capsys, episodes=2)
        assert not said.startswith("VIOLATED"), (entry.name, said)
        codes.append(code)
    assert codes.count(3) > 70


NAMED = re.compile(r"vllm(\.\w+)*:\w+")


def imported(file: Path) -> Iterator[str]:
    """What a file imports of vLLM, as `module:name`: the names of a module that it imports whole,
    and those that it names in a text, are those that it asks of the module."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    whole: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
            names = ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
            whole |= {name: module for name, module in names if is_module(module)}
        elif isinstance(node, ast.Import):
            whole |= {a.asname: a.name for a in node.names if a.asname and "vllm." in a.name}
        elif isinstance(node, ast.Assign) and "import_module('vllm." in ast.unparse(node):
            whole[ast.unparse(node.targets[0])] = ast.unparse(node.value).split("'")[1]
        elif isinstance(node, ast.Constant) and NAMED.fullmatch(str(node.value)):
            yield str(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := whole.get(ast.unparse(node.value))):
            yield f"{module}:{node.attr}"


def is_module(name: str) -> bool:
    """Whether a module has this name."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_whatever_is_imported_of_vllm_is_in_the_contract() -> None:
    """What the kit replaces for the time of a run is listed in `fakes/replaced.py`."""
    places = [place for entry in TABLE for place in entry.places]
    known = {f"{place.module}:{place.names[0]}" for place in places if place.names}
    known |= {f"{place.module}:{place.mentioned}" for place in places if place.mentioned}
    known |= {":".join(place.module.rsplit(".", 1)) for place in places if place.module}
    files = [file for file in LIVE.rglob("*.py") if file not in (REPLACES, FRONT)]
    found = {name for file in files for name in imported(file)}
    assert len(found) > 20
    assert found - known == set()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import vllm.config as home\nhome.Other", "vllm.config:Other"),
        ("from vllm.v1 import outputs as home\nhome.Other()", "vllm.v1.outputs:Other"),
        ("home = importlib.import_module('vllm.config')\nhome.Other", "vllm.config:Other"),
        ("PLACE = 'vllm.config:Other'", "vllm.config:Other"),
    ],
)
def test_a_name_by_another_name_is_seen(text: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text(text, encoding="utf-8")
    assert name in set(imported(file))


def test_whatever_is_asked_of_objects_is_in_the_contract() -> None:
    """Attributes of schedulers and their parts, read where no object is the adapter's own."""
    places = [place for entry in TABLE for place in entry.places]
    known = {p.mentioned or p.known_as or p.names[-1] for p in places if p.names}
    adapter = ("machine", "driver/node", "driver/transfers", "driver/pull", "driver/push")
    kit = ("engine", "observed", "owners", "worker", "caches")
    files = {LIVE / f"{name}.py": ROOTS for name in adapter}
    watcher = list((LIVE.parent / "watch").rglob("*.py"))
    assert watcher
    files |= dict.fromkeys((*(LIVE / "observer").rglob("*.py"), *watcher), ROOTS)
    files |= {KIT / f"{name}.py": ROOTS | OF_KIT for name in kit}
    for file, roots in files.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and roots & set(chain(node))
        }
        assert used - known - NOT_OF_VLLM == set(), file


def chain(node: ast.expr) -> list[str]:
    """The names from which an attribute hangs: `a` and `b` of `a.b.c`."""
    inner = node.value if isinstance(node, ast.Attribute) else node
    if isinstance(inner, ast.Attribute):
        return [*chain(inner), inner.attr]
    return [inner.id] if isinstance(inner, ast.Name) else []
