"""The functions that a run calls are recorded by the names that changed functions have."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kvproof.gate.source.changes import changed
from kvproof.gate.source.reach import Called, called
from kvproof.model.errors import UsageError

SOURCE = """
from functools import wraps

def plain():
    return sum(x for x in (1, 2)) + max([1], key=lambda x: x)

def outer():
    def inner():
        class Local:
            def method(self):
                return 1
        return Local().method()
    return inner()

def wrapping(f):
    @wraps(f)
    def wrapper():
        return f()
    return wrapper

@wrapping
def wrapped():
    return 1

def numbers():
    yield 1
    yield 2

def never():
    return 1

def fails():
    raise ValueError("no")

table = {"a": lambda: 1}

class Thing:
    size = (lambda: 2)()
    made = classmethod(lambda cls: 3)

    class Part:
        def work(self):
            return 1

    @property
    def weight(self):
        return [x for x in (1, 2)]

    @staticmethod
    def still():
        return 1

def body():
    class Late:
        x = 1
    return Late
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "reached_vllm"
    (folder / "v1").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "v1" / "__init__.py").write_text("")
    (folder / "v1" / "thing.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == folder.name]:
        del sys.modules[name]


def thing(package: Path) -> ModuleType:
    return importlib.import_module(f"{package.name}.v1.thing")


def names(found: Called) -> set[str]:
    assert all(key.startswith("v1/thing.py:") for key in found.functions)
    return {key.removeprefix("v1/thing.py:") for key in found.functions}


def test_what_is_nested_belongs_to_its_function(package: Path) -> None:
    module = thing(package)
    calls = {
        "plain": module.plain,
        "outer": module.outer,
        "numbers": lambda: next(module.numbers()),
        "Thing.weight": lambda: module.Thing().weight,
        "Thing.still": module.Thing.still,
        "Thing.Part.work": lambda: module.Thing.Part().work(),
        "<module>": module.table["a"],
        "<class Thing>": module.Thing.made,
        "body": module.body,
    }
    for name, call in calls.items():
        with called(package) as found:
            call()
        assert names(found) == {name}


def test_both_sides_of_a_decorator_are_seen(package: Path) -> None:
    module = thing(package)
    with called(package) as found:
        module.wrapped()
    assert names(found) == {"wrapping", "wrapped"}


def test_a_generator_counts_when_it_starts(package: Path) -> None:
    module = thing(package)
    with called(package) as found:
        made = module.numbers()
    assert names(found) == set()
    with called(package) as found:
        next(made)
    assert names(found) == {"numbers"}


def test_each_block_is_recorded_by_itself(package: Path) -> None:
    module = thing(package)
    for _ in range(3):
        with called(package) as found:
            module.plain()
            module.plain()
        assert names(found) == {"plain"}
    module.never()
    assert names(found) == {"plain"}


def test_an_import_runs_the_bodies(package: Path) -> None:
    with called(package) as found:
        thing(package)
    ran = {key for key in found.functions if key.startswith("v1/thing.py:")}
    wanted = {"<module>", "<class Thing>", "<class Thing.Part>", "wrapping"}
    assert ran == {f"v1/thing.py:{name}" for name in wanted}


def test_only_the_package_is_recorded(package: Path, tmp_path: Path) -> None:
    module = thing(package)
    with called(tmp_path / "reached") as found:
        module.plain()
    assert found.functions == frozenset()


def test_a_link_to_the_package_is_the_package(package: Path, tmp_path: Path) -> None:
    module = thing(package)
    (tmp_path / "link").symlink_to(package)
    with called(tmp_path / "link") as found:
        module.plain()
    assert names(found) == {"plain"}


def test_an_exception_ends_the_recording(package: Path) -> None:
    module = thing(package)
    with pytest.raises(ValueError, match="no"), called(package) as found:
        module.fails()
    module.outer()
    assert names(found) == {"fails"}
    assert sys.getprofile() is None


def test_the_names_are_those_of_changed_functions(package: Path, tmp_path: Path) -> None:
    """A function that is called and that changed has one name."""
    other = tmp_path / "other"
    (other / "v1").mkdir(parents=True)
    (other / "__init__.py").write_text("")
    keys = {each.key for each in changed(other, package).others}
    module = thing(package)
    with called(package) as found:
        module.plain()
        module.outer()
        module.wrapped()
        module.body()
        list(module.numbers())
        module.table["a"]()
        module.Thing.made()
        module.Thing.Part().work()
        assert module.Thing().weight
    assert found.functions < keys
    assert "v1/thing.py:never" in keys


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="sys.monitoring has room for several")
def test_another_profiler_is_not_replaced(package: Path) -> None:
    def other(*_: object) -> None:
        pass

    sys.setprofile(other)
    try:
        with pytest.raises(UsageError, match=r"A profiler is at work.*Use a run"), called(package):
            pass
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_a_tracer_is_not_in_the_way(package: Path) -> None:
    module = thing(package)
    lines: list[int] = []

    def trace(frame: object, event: str, _: object) -> object:
        if event == "line":
            lines.append(frame.f_lineno)  # type: ignore[attr-defined]
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        with called(package) as found:
            module.plain()
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert names(found) == {"plain"}
    assert lines
