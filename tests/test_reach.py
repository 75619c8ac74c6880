"""What a run reaches, by the lines that it executes."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvproof.gate.difference.result import Near
from kvproof.gate.source.changes import Changes, changed
from kvproof.gate.source.reach import Reached, reached
from kvproof.model.errors import UsageError
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


def module_of(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("block_pool_of_test", folder / FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def changes(tmp_path: Path, head: Path, *edits: tuple[str, str]) -> Changes:
    """The changes of a head of which base is the same without some edits."""
    text = SOURCE
    for of_head, of_base in edits:
        assert of_head in text
        text = text.replace(of_head, of_base)
    return changed(package(tmp_path / "base", {FILE: text}), head)


def keys(changes: Changes, folder: Path, call: Call) -> Reached:
    module = module_of(folder)
    with reached(folder, changes.places[1]) as found:
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


def test_what_only_runs_a_definition_reaches_nothing(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    with reached(tree, made.places[1]) as found:
        module = module_of(tree)
    assert functions(found) == {"wrapping"}
    with reached(tree, made.places[1]) as found:
        generator = module.numbers()
    assert found.keys == set()
    assert next(generator) == 1


def test_each_block_is_recorded_by_itself(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    for name in ("plain", "outer", "plain"):
        assert functions(keys(made, tree, CALLS[name])) == {name}


def test_an_exception_ends_the_recording(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    module = module_of(tree)
    with pytest.raises(ValueError, match="no"), reached(tree, made.places[1]) as found:
        module.fails()
    module.outer()
    assert functions(found) == {"fails"}
    assert sys.gettrace() is None


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    head = package(tmp_path / "a[b]+{c}*?", {FILE: SOURCE})
    made = changes(tmp_path, head, ("return total", "return -total"))
    assert functions(keys(made, head, CALLS["plain"])) == {"plain"}


def test_a_link_to_the_package_is_the_package(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))
    module = module_of(tree)
    (tmp_path / "link").symlink_to(tree)
    with reached(tmp_path / "link", made.places[1]) as found:
        module.plain()
    assert functions(found) == {"plain"}


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


def test_what_the_changed_statements_name_and_which_only_raise(tmp_path: Path) -> None:
    more = "total += watermark\n    if x < 0:\n        raise ValueError(x)\n"
    head = package(tmp_path / "new", {FILE: SOURCE.replace("total += 1\n", more)})
    [function] = changed(package(tmp_path / "base", {FILE: SOURCE}), head).accounting
    assert len(function.raises) == 1
    assert function.raises < {*function.statements}
    assert {"watermark", "ValueError"} <= function.words
    assert "sum" not in function.words


def test_a_handler_of_exceptions_counts(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("except ValueError:", "except (ValueError, TypeError):"))
    [function] = made.accounting
    assert len(function.statements) == 1
    assert not function.ran(keys(made, tree, lambda m: m.rare(1)).keys)
    found = keys(made, tree, lambda m: m.rare(type("X", (int,), {"__int__": _no_int})()))
    assert function.ran(found.keys)


def _no_int(_: object) -> int:
    raise ValueError


def test_what_head_removes_counts_on_base(tmp_path: Path, tree: Path) -> None:
    more = "    if x > 1:\n        total += 1\n        total += 7\n"
    made = changes(tmp_path, tree, ("    if x > 1:\n        total += 1\n", more))
    [function] = made.accounting
    assert len(function.statements) == 1
    assert not function.ran(keys(made, tree, lambda m: m.rare(2)).keys)
    module = module_of(tmp_path / "base" / "vllm")
    for x in (1, 2):
        with reached(tmp_path / "base" / "vllm", made.places[0]) as found:
            module.rare(x)
        assert function.ran(found.keys) is (x == 2)


def test_a_removed_function_is_reached_on_base(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("def rare", "def gone():\n    return 1\n\n\ndef rare"))
    [function] = made.accounting
    assert (function.kind, function.statements) == ("removed", ())
    module = module_of(tmp_path / "base" / "vllm")
    with reached(tmp_path / "base" / "vllm", made.places[0]) as found:
        module.gone()
    assert function.ran(found.keys)


def test_a_new_function_counts_by_its_statements(tmp_path: Path, tree: Path) -> None:
    text = SOURCE[SOURCE.index("def wrapping") : SOURCE.index("@wrapping")]
    made = changes(tmp_path, tree, (text, ""))
    [function] = made.accounting
    assert function.kind == "new"
    assert len(function.statements) == 3
    assert not function.ran(keys(made, tree, CALLS["plain"]).keys)
    with reached(tree, made.places[1]) as found:
        module_of(tree).wrapped()
    assert found.keys >= set(function.statements)


def test_the_body_of_a_class_is_reached_by_any_function_of_its_file(
    tmp_path: Path, tree: Path
) -> None:
    made = changes(tmp_path, tree, ("class Thing:\n", "class Thing:\n    size = 1\n"))
    [function] = made.accounting
    assert function.statements == ()
    assert function.ran(keys(made, tree, CALLS["plain"]).keys)
    assert not function.ran(keys(made, tree, lambda _: None).keys)


def test_documentation_is_no_statement(tmp_path: Path, tree: Path) -> None:
    made = changes(
        tmp_path,
        tree,
        ("'''What it does.'''", "'''What it did.'''"),
        ("total = 0", "total = 3"),
    )
    [function] = made.accounting
    assert len(function.statements) == 1


def test_each_step_has_the_functions_of_which_it_executes_the_change(
    tmp_path: Path, tree: Path
) -> None:
    made = changes(tmp_path, tree, ("total += 1", "total += 2"))
    [function] = made.accounting
    module = module_of(tree)
    with reached(tree, made.places[1]) as found:
        for x, names in ((0, ["a"]), (2, ["b", "c", "c"]), (3, ["b"])):
            module.rare(x)
            found.note(names)
        module.rare(4)  # after the last step
    assert found.near == {function.key: Near(2, {"b": 2, "c": 1})}
    assert function.ran(found.keys)


def test_a_debugger_is_not_replaced(tmp_path: Path, tree: Path) -> None:
    made = changes(tmp_path, tree, ("return total", "return -total"))

    def trace(*_: object) -> object:
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        with (
            pytest.raises(UsageError, match=r"A trace function is at work.*Use a run"),
            reached(tree, made.places[1]),
        ):
            pass
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


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
