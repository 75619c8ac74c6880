"""Options of vLLM's configs that kvproof does not model."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kvproof.gate.difference.protocol import Accepts
from kvproof.gate.difference.workload import Engine, Engines, Play
from kvproof.gate.search import workloads
from kvproof.gate.side.drawn_plans import with_plans
from kvproof.gate.source.config_options import OPTIONS_MAX, named
from kvproof.gate.source.files import Package
from kvproof.model.config import Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans import connector, engine
from kvproof.model.plans.config_options import ConfigOption
from kvproof.model.plans.connector import ConnectorPlan, bare
from kvproof.model.plans.engine import given
from tests.packages import package

WHOLE = ConfigOption("scheduler", "enable_chunked_prefill", False)

SOURCE = """
from typing import Literal
Order = Literal["first", "last"]
class SchedulerConfig:
    eager: bool = Field(default=False)
    order: Order = "first"
    span: int | None = None
    policy: Literal["fcfs", "priority"] = "fcfs"
    scheduler_cls: str | type[object] | None = None
    layers: list[str] = field(default_factory=list)
    computed: int = field(default=0, init=False)
"""


CONNECTOR = """
class Store:
    def __init__(self, extra_config, path):
        self.eager = extra_config.get("eager", False)
        self.asks = self.config.get_from_extra_config(
            "asks", True
        )
        self.path = extra_config.get("path", "/tmp")
        self.late = float(extra_config.get("delay", 1_000))
        self.shares = str(extra_config.get("shared", "False")).lower() == "true"
        self.port = extra_config.get("listen_port", 0)
"""


def test_settings_of_connectors_that_are_booleans_or_numbers_are_options(tmp_path: Path) -> None:
    files = {"distributed/kv_transfer/store.py": CONNECTOR, "v1/other.py": CONNECTOR}
    words = "eager", "asks", "path", "listen_port"
    found = named(words, [Package(package(tmp_path, files))])
    both = [(name, value) for name in ("eager", "asks") for value in (False, True)]
    assert found == tuple(ConfigOption("connector", *each) for each in both)


def test_an_attribute_names_the_option_that_it_is_made_of(tmp_path: Path) -> None:
    store = "distributed/kv_transfer/store.py"
    vllm = Package(package(tmp_path, {store: CONNECTOR}))
    found = {(each.name, each.value) for each in named(["late", "shares"], [vllm], [store])}
    assert found == {("delay", n) for n in (1, 4, 16)} | {("shared", b) for b in (False, True)}
    assert named(["late", "shares"], [vllm]) == ()


def test_what_a_line_names_itself_is_tried_before_what_is_made_of_others(tmp_path: Path) -> None:
    """There may be more of the latter than are tried."""
    made = "".join(f'        self.n{n} = extra_config.get("m{n}", {n})\n' for n in range(3))
    store = "distributed/kv_transfer/store.py"
    source = f"class Store:\n    def __init__(self, extra_config):\n{made}"
    source += '        self.own = extra_config.get("asked", False)\n'
    vllm = Package(package(tmp_path, {store: source}))
    found = named(["n0", "n1", "n2", "asked"], [vllm], [store])
    assert len(found) == OPTIONS_MAX
    assert {each.value for each in found if each.name == "asked"} == {False, True}


@pytest.mark.live
def test_a_connector_has_the_settings_of_a_plan() -> None:
    """One that it does not know has no effect."""
    pytest.importorskip("vllm")
    from kvproof.live.connectors.episode import play
    from kvproof.live.connectors.shipped import SHIPPED

    subject = SHIPPED["offloading"].subject
    plan = bare(Group("full", 4))
    played = [
        play(subject, replace(plan, config_options=chosen))
        for chosen in ((), (ConfigOption("connector", "no_such", True),))
    ]
    assert played[0].findings == played[1].findings == ()


def test_a_plan_names_no_module() -> None:
    """vLLM imports the module that a setting of a connector names."""
    with pytest.raises(ValueError, match="Use true, false or a number"):
        ConfigOption("connector", "spec_module_path", "os")
    plan = msgspec.to_builtins(bare(Group("full", 4)))
    with pytest.raises(msgspec.ValidationError, match="options"):
        msgspec.convert(plan | {"options": [["spec_module_path", "os"]]}, ConnectorPlan)


def test_changed_code_names_options_and_their_types_say_the_values(tmp_path: Path) -> None:
    vllm = Package(package(tmp_path / "vllm", {"config/scheduler.py": SOURCE}))
    words = "eager", "order", "span", "policy", "scheduler_cls", "layers", "computed", "else"
    found = named(words, [vllm, vllm])
    values: dict[str, list[Any]] = {}
    for each in found:
        values.setdefault(each.name, []).append(each.value)
    assert values == {"eager": [False, True], "order": ["first", "last"], "span": [1, 4, 16]}
    assert named(["eagerly"], [vllm]) == ()


def test_an_option_that_one_side_alone_has_is_left_out(tmp_path: Path) -> None:
    """Base would not know it, and what head does with it would be told as a mistake."""
    connector = "distributed/kv_transfer/store.py"
    new = {"config/scheduler.py": SOURCE, connector: CONNECTOR}
    old = {
        "config/scheduler.py": SOURCE.replace("span", "spin"),
        connector: CONNECTOR.replace("asks", "says"),
    }
    both = [
        Package(package(tmp_path / name, files)) for name, files in {"old": old, "new": new}.items()
    ]
    words = "span", "spin", "asks", "says", "order"
    assert {each.name for each in named(words, both)} == {"order"}
    assert {each.name for each in named(words, both[::-1])} == {"order"}


def test_a_plan_says_its_options() -> None:
    says = "with scheduler_config.enable_chunked_prefill=False, which kvproof does not model"
    of_core = replace(given(), config_options=(WHOLE,))
    of_kit = bare(Group("full", 4), config_options=(WHOLE,))
    assert says in engine.lines(of_core)[0]
    assert says in connector.lines(of_kit)[0]
    assert "does not model" not in engine.lines(given())[0]


def test_further_runs_have_the_options_of_the_run_that_they_are_like() -> None:
    core = Engine("core", replace(given(), config_options=(WHOLE,)))
    around = workloads.near(core, "around", 1, 0)
    assert isinstance(around, Engines)
    assert around.like is not None
    assert around.like.config_options == (WHOLE,)
    kit = Play("kit", "offloading", bare(Group("full", 4), config_options=(WHOLE,)))
    near = workloads.near(kit, "around", 1, 0, 3)
    assert {plan.config_options for plan in with_plans(near, Accepts()).plans or ()} == {(WHOLE,)}


@pytest.mark.live
def test_an_engine_has_the_options_of_its_plan() -> None:
    pytest.importorskip("vllm")
    from kvproof.live.core.layers import config_of

    plan = given(chunk_tokens=64)
    assert config_of(plan, None).scheduler_config.enable_chunked_prefill
    made = config_of(replace(plan, config_options=(WHOLE,)), None)
    assert not made.scheduler_config.enable_chunked_prefill


@pytest.mark.live
@pytest.mark.parametrize(
    ("option", "says"),
    [
        (ConfigOption("scheduler", "no_such", 1), "takes scheduler_config.no_such=1"),
        (ConfigOption("scheduler", "scheduler_cls", "os.system"), "scheduler_cls='os.system'"),
        (ConfigOption("cache", "kv_cache_layout", "/dev/null"), "kv_cache_layout='/dev/null'"),
        (ConfigOption("scheduler", "stream_interval", 0), "refuses the config"),
    ],
)
def test_an_option_that_vllm_does_not_take_is_named(option: ConfigOption, says: str) -> None:
    """Also one whose text could name a class or a file."""
    pytest.importorskip("vllm")
    from kvproof.live.core.layers import config_of

    with pytest.raises(AdapterDrift, match=says):
        config_of(replace(given(), config_options=(option,)), None)


@pytest.mark.live
def test_random_engines_run_with_an_option() -> None:
    """Those that vLLM refuses with it are left out: here each whose step is shorter than a prompt
    may be."""
    pytest.importorskip("vllm")
    from kvproof.gate.side import plans

    result = plans.driven(Engines("some", 1, 12, config_options=(WHOLE,)))
    assert len(result.records) == 12
    assert 0 < sum(bool(each.marks) for each in result.records) < 12
