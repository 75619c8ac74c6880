"""What a run reaches, by the lines that it executes."""

import asyncio
import importlib
import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kvproof.gate.source.changes import ChangedFunction, Changes, changed
from kvproof.gate.source.probes import Probes, Reached, _Loader, reached
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


class Side(NamedTuple):
    """The file of one side as a module, with the calls of its probes, and what head changes."""

    made: Changes
    probes: Probes
    module: ModuleType

    @property
    def function(self) -> ChangedFunction:
        """The one function that is changed."""
        [function] = self.made.accounting
        return function

    def after(self, call: Call) -> Reached:
        """What a call reaches."""
        with reached(self.probes) as found:
            call(self.module)
        return found

    def ran(self, call: Call) -> bool:
        """Whether a call executes the change."""
        return self.function.ran(self.after(call).keys)

    def executed(self, call: Call) -> int:
        """How many of the changed statements a call executes."""
        return len(self.after(call).keys & {*self.function.statements})


def module_of(probes: Probes, folder: Path) -> ModuleType:
    """The file as a module, with the calls of these probes."""
    module = ModuleType("block_pool_of_test")
    path = str(folder / FILE)
    module.__file__ = path
    exec(probes.code((folder / FILE).read_bytes(), path), vars(module))
    return module


def between(folder: Path, base: str, head: str) -> tuple[Side, Side]:
    """Base and head of a file of the accounting with these texts."""
    texts = {"base": base, "head": head}
    trees = [package(folder / name, {FILE: text}) for name, text in texts.items()]
    made = changed(*trees)
    both = [Probes(tree, places) for tree, places in zip(trees, made.places, strict=True)]
    base_side, head_side = (
        Side(made, probes, module_of(probes, tree))
        for probes, tree in zip(both, trees, strict=True)
    )
    return base_side, head_side


def edited(folder: Path, *edits: tuple[str, str]) -> tuple[Side, Side]:
    """A base and a head that is the same but for some edits, each of which is what head has and
    what base has."""
    base = SOURCE
    for of_head, of_base in edits:
        assert of_head in base
        base = base.replace(of_head, of_base)
    return between(folder, base, SOURCE)


NEGATED = ("return total", "return -total")


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
def test_what_is_nested_belongs_to_its_function(tmp_path: Path, name: str) -> None:
    _, head = edited(tmp_path, NEGATED)
    assert functions(head.after(CALLS[name])) == set(name.split(", "))


def test_an_exception_ends_the_recording(tmp_path: Path) -> None:
    _, head = edited(tmp_path, NEGATED)
    with pytest.raises(ValueError, match="no"), reached(head.probes) as found:
        head.module.fails()
    head.module.outer()
    assert functions(found) == {"fails"}


def test_a_function_is_reached_by_what_is_changed_in_it(tmp_path: Path) -> None:
    _, head = edited(tmp_path, ("total += 1", "total += 2"), ("total = -1", "total = -2"))
    assert head.function.key == f"{FILE}:rare"
    assert len(head.function.statements) == 2
    for x, count in ((0, 0), (2, 1)):
        assert head.function.key in head.after(lambda m, x=x: m.rare(x)).keys  # type: ignore[misc]
        assert head.executed(lambda m, x=x: m.rare(x)) == count  # type: ignore[misc]
        assert head.ran(lambda m, x=x: m.rare(x)) is bool(count)  # type: ignore[misc]


def test_a_changed_loop_is_executed_where_its_body_is(tmp_path: Path) -> None:
    before = "def walked(xs):\n    for x in xs:\n        yield x\n"
    _, head = between(tmp_path, before, before.replace("in xs:", "in xs[:1]:"))
    assert head.function.statements == (f"{FILE}:@2", f"{FILE}:@3")
    assert head.executed(lambda m: [*m.walked(())]) == 1
    assert head.executed(lambda m: [*m.walked((7, 8))]) == 2


def test_what_the_changed_statements_name_and_which_only_raise(tmp_path: Path) -> None:
    more = "total += watermark\n    if x < 0:\n        raise ValueError(x)\n"
    _, head = between(tmp_path, SOURCE, SOURCE.replace("total += 1\n", more))
    function = head.function
    assert len(function.raises) == 1
    assert function.raises < {*function.statements}
    assert {"watermark", "ValueError"} <= function.words
    assert "sum" not in function.words


def test_what_head_removes_counts_on_base(tmp_path: Path) -> None:
    more = "    if x > 1:\n        total += 1\n        total += 7\n"
    base, head = edited(tmp_path, ("    if x > 1:\n        total += 1\n", more))
    assert len(head.function.statements) == 1
    assert not head.ran(lambda m: m.rare(2))
    assert not base.ran(lambda m: m.rare(1))
    assert base.ran(lambda m: m.rare(2))


def test_a_removed_function_is_reached_on_base(tmp_path: Path) -> None:
    base, _ = edited(tmp_path, ("def rare", "def gone():\n    return 1\n\n\ndef rare"))
    assert (base.function.kind, base.function.statements) == ("removed", ())
    assert base.ran(lambda m: m.gone())


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
    _, head = between(tmp_path, "seen = []\n\ndef every(x):\n    pass\n", EVERY_KIND)
    made = head.made
    function = next(each for each in (*made.accounting, *made.others) if each.name == "every")
    left = {*function.statements} - head.after(lambda m: m.every(0)).keys
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
    text = STOPS.replace("z = 7", "z = 8").replace("return 1", "return 2")
    _, head = between(tmp_path, text.replace("y += 5", "y += 6"), STOPS)
    assert head.module.stops.__doc__ == "What it does."
    by_name = {each.name: each for each in (*head.made.accounting, *head.made.others)}
    for x, seen in ((2, False), (3, True)):
        found = head.after(lambda m, x=x: list(m.stops(x)))  # type: ignore[misc]
        assert by_name["stops"].ran(found.keys) is seen
    found = head.after(lambda m: asyncio.run(m.waits()))
    assert {*by_name["waits"].statements} <= found.keys


def test_nothing_else_in_a_file_is_different(tmp_path: Path) -> None:
    """Its lines in a traceback, its text, and what it says when nothing is recorded."""
    _, head = edited(tmp_path, NEGATED)
    plain = ModuleType("plain")
    exec(compile(SOURCE, str(head.module.__file__), "exec"), vars(plain))
    for each in (head.module, plain):
        with pytest.raises(ValueError, match="no") as raised:
            each.fails()
        assert raised.traceback[-1].lineno == SOURCE.split("\n").index("def fails():") + 1
        assert inspect.getsource(each.rare) in SOURCE
        assert each.rare.__doc__ == "What it does."
        assert each.rare(3) == 4
    assert {*vars(head.module)} - {*vars(plain)} == {"__file__"}


def test_the_files_are_imported_with_their_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python imports them, and no other file."""
    _, head = edited(tmp_path, ("total += 1", "total += 2"))
    tree = tmp_path / "head" / "vllm"
    (tree / "v1" / "plain.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tree))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    head.probes.install()
    module = importlib.import_module("v1.core.block_pool")
    other = importlib.import_module("v1.plain")
    try:
        with reached(head.probes) as found:
            module.rare(2)
            other.f()
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "v1"]:
            del sys.modules[name]
    assert functions(found) == {"rare"}
    assert head.function.ran(found.keys)
    assert type(module.__spec__.loader) is not type(other.__spec__.loader)
    assert not [*tree.rglob("block_pool*.pyc")]


def test_threads_and_calls_of_itself_are_followed(tmp_path: Path) -> None:
    text = "def down(x):\n    if x:\n        down(x - 1)\n        x += 1\n    return x\n"
    _, head = between(tmp_path, text.replace("+= 1", "+= 2"), text)

    def in_a_thread(x: int) -> Call:
        def call(module: ModuleType) -> None:
            thread = threading.Thread(target=module.down, args=(x,))
            thread.start()
            thread.join()

        return call

    assert not head.ran(in_a_thread(0))
    assert head.ran(in_a_thread(3))
    assert head.ran(lambda m: m.down(3))


def test_a_file_without_calls_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs reach of it is not known."""
    tree = package(tmp_path / "head", {FILE: SOURCE})
    probes = Probes(tree, {FILE: {1: ("x",)}})

    def too_deep(*_: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(probes, "code", too_deep)
    loader = _Loader(probes, "block_pool", str(tree / FILE))
    assert loader.get_code("block_pool") is not None
    assert probes.unwatched == {FILE: "RecursionError: maximum recursion depth exceeded"}


def test_what_only_runs_a_definition_reaches_nothing(tmp_path: Path) -> None:
    _, head = edited(tmp_path, NEGATED)
    with reached(head.probes) as found:
        module = module_of(head.probes, tmp_path / "head" / "vllm")
    assert functions(found) == {"wrapping"}
    with reached(head.probes) as found:
        generator = module.numbers()
    assert found.keys == set()
    assert next(generator) == 1


def test_a_handler_of_exceptions_counts(tmp_path: Path) -> None:
    _, head = edited(tmp_path, ("except ValueError:", "except (ValueError, TypeError):"))
    assert len(head.function.statements) == 1
    assert not head.ran(lambda m: m.rare(1))
    assert head.ran(lambda m: m.rare(type("X", (int,), {"__int__": _no_int})()))


def _no_int(_: object) -> int:
    raise ValueError


def test_the_body_of_a_class_is_reached_by_any_function_of_its_file(tmp_path: Path) -> None:
    _, head = edited(tmp_path, ("class Thing:\n", "class Thing:\n    size = 1\n"))
    assert head.function.statements == ()
    assert head.ran(CALLS["plain"])
    assert not head.ran(lambda _: None)
