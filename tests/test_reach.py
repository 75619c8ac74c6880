"""What a run reaches, by the lines that it executes."""

import asyncio
import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvproof.gate.difference.result import Near
from kvproof.gate.source.changes import Changes, changed
from kvproof.gate.source.probes import Probes, _Loader
from kvproof.gate.source.reach import Reached, reached
from tests.packages import package

FILE = "v1/core/block_pool.py"
"""A file of the accounting."""

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

def fails():
    raise ValueError("no")

table = {"a": lambda: 1}

class Thing:
    class Part:
        def work(self):
            return 1

    @property
    def weight(self):
        return [x for x in (1, 2)]

class Kept:
    def __init__(self):
        self.kept = 2

def rare(x):
    '''What it does.'''
    total = 0
    if x > 1:
        total += 1
    try:
        total += int(x)
    except ValueError:
        total = -1
    return total
"""

Call = Callable[[ModuleType], Any]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package vllm with one file of the accounting."""
    return package(tmp_path / "head", {FILE: SOURCE})


def module_of(probes: Probes, folder: Path) -> ModuleType:
    """The file as a module, with the calls of these probes."""
    module = ModuleType("block_pool_of_test")
    path = str(folder / FILE)
    module.__file__ = path
    exec(probes.code((folder / FILE).read_bytes(), path), vars(module))
    return module


def changes(tmp_path: Path, head: Path, *edits: tuple[str, str]) -> Changes:
    """The changes of a head of which base is the same without some edits."""
    text = SOURCE
    for of_head, of_base in edits:
        assert of_head in text
        text = text.replace(of_head, of_base)
    return changed(package(tmp_path / "base", {FILE: text}), head)


def keys(changes: Changes, folder: Path, call: Call) -> Reached:
    probes = Probes(folder, changes.places[1])
    module = module_of(probes, folder)
    with reached(probes) as found:
        call(module)
    return found


def functions(found: Reached) -> set[str]:
    names = (key.partition(":")[2] for key in found.keys)
    return {name for name in names if name and not name.startswith("@")}


CALLS: dict[str, Call] = {
    "plain": lambda m: m.plain(),
    "outer": lambda m: m.outer(),
    "numbers": lambda m: next(m.numbers()),
    "Thing.weight": lambda m: m.Thing().weight,
    "Thing.Part.work": lambda m: m.Thing.Part().work(),
    "wrapping, wrapped": lambda m: m.wrapped(),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_nested_belongs_to_its_function(tmp_path: Path, tree: Path, name: str) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    assert functions(keys(made, tree, CALLS[name])) == set(name.split(", "))


def test_an_exception_ends_the_recording(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    probes = Probes(tree, made.places[1])
    module = module_of(probes, tree)
    with pytest.raises(ValueError, match="no"), reached(probes) as found:
        module.fails()
    module.outer()
    assert functions(found) == {"fails"}


def test_a_function_is_reached_by_what_is_changed_in_it(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("total += 1", "total += 2"), ("total = -1", "total = -2"))
    [function] = made.accounting
    assert function.key == f"{FILE}:rare"
    assert len(function.statements) == 2
    for x, count in ((0, 0), (2, 1)):
        found = keys(made, tree, lambda m, x=x: m.rare(x))  # type: ignore[misc]
        assert function.key in found.keys
        assert len(found.keys & set(function.statements)) == count
        assert function.ran(found.keys) is bool(count)


def test_a_changed_loop_is_executed_where_its_body_is(tmp_path: Path) -> None:
    before = "def walked(xs):\n    for x in xs:\n        yield x\n"
    base = package(tmp_path / "old", {FILE: before})
    head = package(tmp_path / "new", {FILE: before.replace("in xs:", "in xs[:1]:")})
    made = changed(base, head)
    [function] = made.accounting
    assert function.statements == (f"{FILE}:@2", f"{FILE}:@3")
    for given, executed in ((), 1), ((7, 8), 2):
        found = keys(made, head, lambda m, xs=given: [*m.walked(xs)])  # type: ignore[misc]
        assert len(found.keys & set(function.statements)) == executed


def test_what_the_changed_statements_name_and_which_only_raise(tmp_path: Path) -> None:
    more = "total += watermark\n    if x < 0:\n        raise ValueError(x)\n"
    head = package(tmp_path / "new", {FILE: SOURCE.replace("total += 1\n", more)})
    [function] = changed(package(tmp_path / "base", {FILE: SOURCE}), head).accounting
    assert len(function.raises) == 1
    assert function.raises < {*function.statements}
    assert {"watermark", "ValueError"} <= function.words
    assert "sum" not in function.words


def test_what_head_removes_counts_on_base(tmp_path: Path, tree: Path) -> None:
    more = "    if x > 1:\n        total += 1\n        total += 7\n"
    made = changes(tmp_path, tree, ("    if x > 1:\n        total += 1\n", more))
    [function] = made.accounting
    assert len(function.statements) == 1
    assert not function.ran(keys(made, tree, lambda m: m.rare(2)).keys)
    probes = Probes(tmp_path / "base" / "vllm", made.places[0])
    module = module_of(probes, tmp_path / "base" / "vllm")
    for x in (1, 2):
        with reached(probes) as found:
            module.rare(x)
        assert function.ran(found.keys) is (x == 2)


def test_a_removed_function_is_reached_on_base(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("def rare", "def gone():\n    return 1\n\n\ndef rare"))
    [function] = made.accounting
    assert (function.kind, function.statements) == ("removed", ())
    probes = Probes(tmp_path / "base" / "vllm", made.places[0])
    module = module_of(probes, tmp_path / "base" / "vllm")
    with reached(probes) as found:
        module.gone()
    assert function.ran(found.keys)


def test_each_step_has_the_functions_of_which_it_executes_the_change(
    tmp_path: Path, tree: Path
) -> None:
    made = changes(tmp_path, tree, ("total += 1", "total += 2"))
    [function] = made.accounting
    probes = Probes(tree, made.places[1])
    module = module_of(probes, tree)
    with reached(probes) as found:
        for x, names in ((0, ["a"]), (2, ["b", "c", "c"]), (3, ["b"])):
            module.rare(x)
            found.note(names)
        module.rare(4)  # after the last step
    assert found.near == {function.key: Near(2, {"b": 2, "c": 1})}
    assert function.ran(found.keys)


@pytest.mark.parametrize(("of_cluster", "near"), [(True, {"b": 1, "c": 2}), (False, {"b": 1})])
def test_what_a_constructor_does_is_near_each_later_step_of_a_cluster(
    tmp_path: Path, tree: Path, of_cluster: bool, near: dict[str, int]
) -> None:
    made = changes(tmp_path, tree, ("self.kept = 2", "self.kept = 1"))
    [function] = made.accounting
    probes = Probes(tree, made.places[1])
    module = module_of(probes, tree)
    with reached(probes, of_cluster) as found:
        found.note(["a"])
        module.Kept()
        for name in ("b", "c", "c"):
            found.note([name])
    assert found.near == {function.key: Near(sum(near.values()), near)}


EVERY_KIND = """
seen = []

def every(x):
    global seen
    y: int
    y: int = 0
    while True:
        y += 1
        if y < 2:
            continue
        elif y > 2:
            break
    for _ in ():
        raise ValueError
    else:
        y = 1
    try:
        assert x
    except (
        AssertionError
    ):
        del y
    finally:
        seen = [
            x
        ]
    with open(
        __file__
    ) as file:
        pass
    match x:
        case 0:
            import os
    class Local:
        z = 1
        def method(self):
            return self.z
    @staticmethod
    def inner():
        yield 1
    return list(inner()), Local().method(), lambda: 1
"""


def test_each_statement_that_runs_is_seen(tmp_path: Path) -> None:
    """Whatever its kind, on each version of Python: else it would be named as not executed."""
    head = package(tmp_path / "head", {FILE: EVERY_KIND})
    base = package(tmp_path / "base", {FILE: "seen = []\n\ndef every(x):\n    pass\n"})
    made = changed(base, head)
    function = next(each for each in (*made.accounting, *made.others) if each.name == "every")
    found = keys(made, head, lambda m: m.every(0))
    left = {*function.statements} - found.keys
    lines = EVERY_KIND.split("\n")
    assert [lines[int(key.rpartition("@")[2]) - 1].strip() for key in left] == ["raise ValueError"]


STOPS = """
import asyncio

def stops(x):
    'What it does.'
    for y in range(x):
        z = y
        yield z
        z += 1
        if z > 2:
            z = 7
    return

async def waits():
    await asyncio.sleep(0)
    async for y in also():
        y += 5
    return 1

async def also():
    yield 1
"""


def test_what_stops_is_followed_when_it_goes_on(tmp_path: Path) -> None:
    head = package(tmp_path / "head", {FILE: STOPS})
    text = STOPS.replace("z = 7", "z = 8").replace("return 1", "return 2")
    base = package(tmp_path / "base", {FILE: text.replace("y += 5", "y += 6")})
    made = changed(base, head)
    probes = Probes(head, made.places[1])
    module = module_of(probes, head)
    assert module.stops.__doc__ == "What it does."
    by_name = {each.name: each for each in (*made.accounting, *made.others)}
    for x, seen in ((2, False), (3, True)):
        with reached(probes) as found:
            assert list(module.stops(x)) == list(range(x))
        assert by_name["stops"].ran(found.keys) is seen
    with reached(probes) as found:
        assert asyncio.run(module.waits()) == 1
    assert {*by_name["waits"].statements} <= found.keys


def test_nothing_else_in_a_file_is_different(tmp_path: Path, tree: Path) -> None:
    """Its lines in a traceback, its text, and what it says when nothing is recorded."""
    made = changes(tmp_path, tree, ("return total", "return -total"))
    module, plain = module_of(Probes(tree, made.places[1]), tree), ModuleType("plain")
    exec(compile(SOURCE, str(tree / FILE), "exec"), vars(plain))
    for each in (module, plain):
        with pytest.raises(ValueError, match="no") as raised:
            each.fails()
        assert raised.traceback[-1].lineno == SOURCE.split("\n").index("def fails():") + 1
        assert inspect.getsource(each.rare) in SOURCE
        assert each.rare.__doc__ == "What it does."
        assert each.rare(3) == 4
    assert {*vars(module)} - {*vars(plain)} == {"__file__"}


def test_the_files_are_imported_with_their_calls(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python imports them, and no other file."""
    made = changes(tmp_path, tree, ("total += 1", "total += 2"))
    (tree / "v1" / "plain.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tree))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    probes = Probes(tree, made.places[1])
    probes.install()
    module = importlib.import_module("v1.core.block_pool")
    other = importlib.import_module("v1.plain")
    try:
        with reached(probes) as found:
            module.rare(2)
            other.f()
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "v1"]:
            del sys.modules[name]
    assert functions(found) == {"rare", "rare@"}
    assert made.accounting[0].ran(found.keys)
    assert type(module.__spec__.loader) is not type(other.__spec__.loader)
    assert not [*tree.rglob("block_pool*.pyc")]


def test_threads_and_calls_of_itself_are_followed(tmp_path: Path) -> None:
    text = "def down(x):\n    if x:\n        down(x - 1)\n        x += 1\n    return x\n"
    head = package(tmp_path / "head", {FILE: text})
    made = changed(package(tmp_path / "base", {FILE: text.replace("+= 1", "+= 2")}), head)
    probes = Probes(head, made.places[1])
    module = module_of(probes, head)
    [function] = made.accounting
    for x, seen in ((0, False), (3, True)):
        with reached(probes) as found:
            thread = threading.Thread(target=module.down, args=(x,))
            thread.start()
            thread.join()
        assert function.ran(found.keys) is seen
    with reached(probes) as found:
        module.down(3)
    assert function.ran(found.keys)


def test_a_file_without_calls_is_told(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs reach of it is not known."""
    probes = Probes(tree, {FILE: {1: ("x",)}})
    path = str(tree / FILE)

    def too_deep(*_: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(probes, "code", too_deep)
    assert _Loader(probes, "block_pool", path).get_code("block_pool") is not None
    assert probes.unwatched == {FILE: "RecursionError: maximum recursion depth exceeded"}


def test_what_only_runs_a_definition_reaches_nothing(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    probes = Probes(tree, made.places[1])
    with reached(probes) as found:
        module = module_of(probes, tree)
    assert functions(found) == {"wrapping"}
    with reached(probes) as found:
        generator = module.numbers()
    assert found.keys == set()
    assert next(generator) == 1


def test_a_handler_of_exceptions_counts(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("except ValueError:", "except (ValueError, TypeError):"))
    [function] = made.accounting
    assert len(function.statements) == 1
    assert not function.ran(keys(made, tree, lambda m: m.rare(1)).keys)
    found = keys(made, tree, lambda m: m.rare(type("X", (int,), {"__int__": _no_int})()))
    assert function.ran(found.keys)


def _no_int(_: object) -> int:
    raise ValueError


def test_the_body_of_a_class_is_reached_by_any_function_of_its_file(
    tmp_path: Path, tree: Path
) -> None:
    made = changes(tmp_path, tree, ("class Thing:\n", "class Thing:\n    size = 1\n"))
    [function] = made.accounting
    assert function.statements == ()
    assert function.ran(keys(made, tree, CALLS["plain"]).keys)
    assert not function.ran(keys(made, tree, lambda _: None).keys)
