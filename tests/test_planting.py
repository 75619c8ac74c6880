"""A fault is in effect wherever its functions are called, for the time of a run and no longer."""

import contextlib
import functools
import importlib
import pkgutil
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvproof import model
from kvproof.cli.main import main
from kvproof.model import capacity, planting
from kvproof.model.arithmetic import counts
from kvproof.model.because import reason
from kvproof.model.config import EngineConfig, Group
from kvproof.model.discovery import modules
from kvproof.model.errors import UsageError
from kvproof.model.faults import fault as fault_module
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.reference.blocks import pool
from kvproof.model.state import PREEMPTED, Request, Table
from kvproof.model.wording import sentences

PREDICTED = "arithmetic.counts:attention_blocks_predicted"


def kept_elsewhere(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """The functions that a value holds, with the way to each: in containers, partials, default
    arguments, closures, and what is in a class or an object of kvproof."""
    if id(value) in seen:
        return
    seen.add(id(value))
    inside: list[tuple[str, Any]] = []
    if isinstance(value, types.FunctionType):
        defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        inside = [*enumerate_as("default", defaults), *enumerate_as("cell", contents(value))]
    elif isinstance(value, Mapping):
        inside = [(f"[{key!r}]", each) for key, each in value.items()]
        inside += enumerate_as("key", value)
    elif isinstance(value, list | tuple | set | frozenset):
        inside = enumerate_as("", value)
    elif isinstance(value, functools.partial):
        inside = [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    elif hasattr(value, "cache_clear"):
        yield from kept_elsewhere(value.__wrapped__, path, seen)
    elif isinstance(value, property | functools.cached_property | staticmethod | classmethod):
        for name in ("fget", "func", "__func__"):
            yield from kept_elsewhere(getattr(value, name, None), path, seen)
    elif isinstance(value, type) and value.__module__.startswith("kvproof"):
        for name, each in vars(value).items():
            if isinstance(each, types.FunctionType):  # a method is replaced in its class
                yield from kept_elsewhere(each, f"{path}.{name}", seen)
            elif not name.startswith("__"):
                inside.append((name, each))
    elif type(value).__module__.startswith("kvproof"):
        names = [*getattr(value, "__dict__", ()), *getattr(value, "__struct_fields__", ())]
        inside = [(name, getattr(value, name)) for name in names]
    for name, each in inside:
        if isinstance(each, types.FunctionType) or hasattr(each, "cache_clear"):
            yield f"{path}.{name}", each
        yield from kept_elsewhere(each, f"{path}.{name}", seen)


def enumerate_as(name: str, values: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(f"{name}[{place}]", each) for place, each in enumerate(values)]


def contents(function: types.FunctionType) -> Iterator[Any]:
    """What a closure holds; a cell may be empty still."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            yield cell.cell_contents


def replaceable(value: Any) -> bool:
    """Whether a fault may replace a function, and it has a name of its own."""
    module = str(getattr(value, "__module__", ""))
    places = tuple(f"{planting.MODEL}.{each}" for each in planting.REPLACEABLE)
    named = getattr(value, "__name__", "<lambda>") != "<lambda>"
    return named and any(module == each or module.startswith(f"{each}.") for each in places)


def test_replaceable_functions_are_reached_by_their_names_alone() -> None:
    """A dict of functions, a partial or a default argument would call the right function while a
    wrong one is planted, and the fault would be silently inert."""
    for module in pkgutil.walk_packages(model.__path__, f"{model.__name__}."):
        importlib.import_module(module.name)
    others = (planting.FAULTS, planting.__name__)
    for name, module in list(sys.modules.items()):
        if name.startswith(planting.CACHING) and not name.startswith(others):
            for bound, value in list(vars(module).items()):
                if isinstance(value, types.ModuleType) or bound.startswith("__"):
                    continue
                for path, held in kept_elsewhere(value, f"{name}:{bound}", set()):
                    assert not replaceable(held), f"{path} holds {held.__qualname__}"


def test_an_exception_in_a_run_removes_its_fault() -> None:
    before = pool.release

    def run() -> None:
        with planted(FAULTS["double_free"]):
            assert pool.release is not before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert pool.release is before


def test_a_module_imported_under_a_fault_gets_the_right_function_afterwards() -> None:
    late = types.ModuleType("kvproof.model.late")
    right = counts.tail_chunk
    try:
        with planted(FAULTS["prompt_end_run_over"]):
            sys.modules[late.__name__] = late
            vars(late)["tail_chunk"] = counts.tail_chunk
        assert vars(late)["tail_chunk"] is right
    finally:
        del sys.modules[late.__name__]


def test_caches_filled_under_a_fault_are_emptied_with_it() -> None:
    engine = EngineConfig("E", (Group("full", 2),), num_blocks=9)
    assert capacity.peak_blocks(engine, 4) == 2
    with planting.planted({PREDICTED: lambda *_: 7}):
        assert capacity.peak_blocks(engine, 4) > 2
    assert capacity.peak_blocks(engine, 4) == 2


def test_faults_of_different_functions_are_planted_together() -> None:
    both = FAULTS["double_free"], FAULTS["front_trim"]
    with planted(both[0]), planted(both[1]):
        assert planting.planted_now() == {**both[0].replaces, **both[1].replaces}
    with planted(*both):
        assert planting.planted_now() == {**both[0].replaces, **both[1].replaces}
    same = FAULTS["front_trim"], FAULTS["end_trim_across_ratios"]
    with pytest.raises(UsageError, match="replace the same function"), planted(*same):
        pass


def test_a_model_that_cannot_go_on_after_a_fault_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that is preempted keeps its tables, or that of one group alone. Only what is asked
    for is checked."""

    def given(kept: Callable[[Request], tuple[Table, ...]], command: str) -> int:
        def preempted(request: Request) -> Request:
            return request._replace(
                status=PREEMPTED, tables=kept(request), computed=0, preemptions=1
            )

        stays = replace(FAULT, replaces={"reference.scheduling.preemption:preempted": preempted})
        monkeypatch.setitem(FAULTS, FAULT.name, stays)
        asked = ["--config", "window", "--invariant", "admitted_request_was_waiting"]
        return main([command, "--fault", FAULT.name, *asked])

    assert given(lambda request: request.tables, "sample") == 0
    assert "admitted_request_was_waiting" in capsys.readouterr().out
    assert given(lambda request: request.tables[:1], "explore") == 3
    said = capsys.readouterr()
    assert said.out.startswith(f"UNKNOWN: The model cannot go on after the fault {FAULT.name} (")
    assert "kvproof.model.reference." in said.out
    assert said.err == ""


# A file of one's own that is not right is told in two sentences


FAULT = FAULTS["untouched_hits"]


HEAD = """from kvproof.model.faults.fault import fault

COMMON = dict(origin="", breaks="references_are_exact", cluster="full")

"""
MINE = """@fault("a mistake of mine", replaces={replaces!r}, **COMMON)
def {name}(engine, _blocks):
    return engine
"""
TOUCH = "reference.blocks.pool:touch"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", None),
        (MINE.format(name="mine", replaces=TOUCH), None),
        ("missing\n", r"NameError: name 'missing' is not defined"),
        (MINE.format(name="mine", replaces="reference.blocks.pond:touch"), r"has no module .*pond"),
        (
            MINE.format(name="mine", replaces="reference.blocks.pool:tuch"),
            r"has no function .*tuch",
        ),
        (MINE.format(name="mine", replaces="reference.blocks.pool:grown"), r"has no function"),
        (MINE.format(name="mine", replaces="reference.blocks.pool:promote"), r"other arguments"),
        (
            MINE.format(name="mine", replaces="reference.blocks.allocation:extend").replace(
                "_blocks", "*_"
            ),
            r"other arguments",
        ),
        (MINE.format(name="mine", replaces=TOUCH).replace(", _blocks", ""), r"other arguments"),
        (
            MINE.format(name="mine", replaces="config.features.registry:refuse"),
            r"no function of the model's sched",
        ),
        (
            f"from kvproof.model.capacity import fits\n"
            f"fault('a mistake', replaces={TOUCH!r}, **COMMON)(fits)\n",
            r"by a function of the model",
        ),
        (
            MINE.format(name="untouched_hits", replaces=TOUCH),
            r"Two faults are named untouched_hits",
        ),
        ("@fault('a mistake')\ndef mine(): pass\n", r"TypeError: .* 'origin'"),
        ("import kvproof.missing\n", r"ModuleNotFoundError: No module named 'kvproof\.missing'"),
        ("def mine(:\n", r"SyntaxError"),
    ],
)
def test_a_fault_that_is_not_right_is_told_with_its_line(
    written: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = types.ModuleType("faults_of_an_author")
    folder.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, folder.__name__, folder)
    monkeypatch.delitem(sys.modules, f"{folder.__name__}.mine", raising=False)
    monkeypatch.setattr(fault_module, "REGISTERED", dict(FAULTS))
    (tmp_path / "mine.py").write_text(HEAD + written, encoding="utf-8")
    if told is None:
        modules(folder)
        assert ("mine" in fault_module.REGISTERED) is bool(written)
        return
    with pytest.raises(UsageError, match=rf"mine\.py.*{told}.*\. Use ") as refused:
        modules(folder)
    assert re.search(r"mine\.py, line \d+", str(refused.value))


def test_a_gap_without_a_value_is_named() -> None:
    stated = reason("is_so", "block {block} has {cnt} owners", count=2)
    with pytest.raises(UsageError, match=r"has the gap \{cnt\}, and no value for it\. Use .*count"):
        sentences((stated,))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"breaks": ("referenced_are_exact",)}, "There is no invariant named"),
        ({"breaks": ("hit_blocks_are_cached",)}, "breaks hit_blocks_are_cached, which is a guard"),
        ({"cluster": "ful"}, "There is no cluster"),
    ],
)
def test_names_that_a_fault_may_not_have_are_refused(
    wrong: dict[str, object],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(FAULTS, FAULT.name, replace(FAULT, **wrong))  # type: ignore[arg-type]
    assert main(["explore", "--fault", FAULT.name, "--config", "full"]) == 2
    assert named in capsys.readouterr().err
