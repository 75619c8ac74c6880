"""The changed files of vLLM, imported with calls that say what is executed: one at the beginning of
each function, one before each changed statement, and one around each operand of a changed condition
that says its value. Nothing else in them is different: no line, no name, no value. These calls tell
what a run reaches: a trace function for the whole run makes it take twice as long.
"""

import ast
import builtins
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kvproof.gate.source.names import FUNCTIONS, Functions
from kvproof.gate.source.outcomes import MARK, conditions, number_of, outcome
from kvproof.gate.source.statements import Places, lines_of
from kvproof.gate.source.units import bodies

RAN = "_kvproof_ran"
"""The name by which code says that it is executed, with a number."""

VALUED = "_kvproof_valued"
"""The name by which an operand says its value, with the key of the operand. It returns the
value."""


def idle() -> None:
    """From now on, a call says nothing."""
    setattr(builtins, RAN, bool)
    setattr(builtins, VALUED, _value)


def _value(_key: str, value: object) -> object:
    return value


class Probes:
    """The files of `places` in a folder that is a package. `files` has them by path, and `keys` has
    what each call stands for. `unwatched` are the files that were imported without calls, each with
    the reason."""

    def __init__(self, package: Path, places: Places) -> None:
        self._places = places
        self.files = {os.path.realpath(package / file): file for file in places}
        self.keys: list[frozenset[str]] = []
        self.unwatched: dict[str, str] = {}
        idle()

    def install(self) -> None:
        """From now on, these files are imported with their calls."""
        if self.files:
            sys.meta_path.insert(0, _Finder(self))

    def code(self, content: bytes, path: str) -> CodeType:
        """The program of a file with its calls."""
        tree = ast.parse(content)
        file = self.files[os.path.realpath(path)]
        operands = [place for _, places in conditions(tree) for place in places]
        for key in {key for keys in self._places[file].values() for key in keys if MARK in key}:
            place = operands[number_of(key)]
            place.put(_valued(key, place.node))
        for node in [*ast.walk(tree)]:
            if isinstance(node, FUNCTIONS):
                self._put(node, file)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def _put(self, node: Functions, file: str) -> None:
        """Put calls into a function: at its beginning, and before what stands for more."""
        called = self._keys(file, range(node.body[0].lineno, node.body[0].lineno + 1))
        for part in [node, *_within(node)]:
            for body in bodies(part):
                body[:] = [each for one in body for each in (*self._before(one, file, called), one)]
            if isinstance(part, ast.ExceptHandler | ast.match_case):
                # It is executed where its body is.
                keys = self._keys(file, lines_of(part) or range(0)) - called
                part.body[:0] = self._calls(keys, part.body[0])
        first = int(_is_documentation(node.body[0]))
        node.body[first:first] = self._calls(called, node.body[min(first, len(node.body) - 1)])

    def _before(self, node: ast.stmt, file: str, called: frozenset[str]) -> list[ast.stmt]:
        """The call before a statement; none where it stands for what its function stands for."""
        if _is_documentation(node):
            return []
        return self._calls(self._keys(file, lines_of(node) or range(0)) - called, node)

    def _keys(self, file: str, lines: range) -> frozenset[str]:
        """What these lines stand for. An operand says its value itself."""
        of_file = self._places[file]
        return frozenset(key for line in lines for key in of_file.get(line, ()) if MARK not in key)

    def _calls(self, keys: frozenset[str], at: ast.stmt) -> list[ast.stmt]:
        """A call that says that these keys are reached, on the line of a statement; none where
        there are no keys."""
        if not keys:
            return []
        self.keys.append(keys)
        called = ast.Call(ast.Name(RAN, ast.Load()), [ast.Constant(len(self.keys) - 1)], [])
        made = ast.copy_location(ast.Expr(called), at)
        for part in ast.walk(made):
            ast.copy_location(part, at)
            if isinstance(part, ast.expr | ast.stmt):
                part.end_lineno, part.end_col_offset = at.lineno, at.col_offset
        return [made]


def _valued(key: str, operand: ast.expr) -> ast.expr:
    """An operand that says its value."""
    called = ast.Call(ast.Name(VALUED, ast.Load()), [ast.Constant(key), operand], [])
    for part in (called, called.func, called.args[0]):
        ast.copy_location(part, operand)
    return called


def _is_documentation(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function that do not belong to one nested in it."""
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, FUNCTIONS):
            yield part
            yield from _within(part)


class _Finder(MetaPathFinder):
    """It finds the files as Python does, and has them loaded with their calls."""

    def __init__(self, probes: Probes) -> None:
        self.probes = probes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, if it is one of the files."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or os.path.realpath(spec.origin or "") not in self.probes.files:
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(self.probes, fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """It compiles a file with its calls, and keeps no compiled file."""

    def __init__(self, probes: Probes, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self.probes = probes

    def get_code(self, fullname: str) -> CodeType | None:
        """The program of the file; as Python compiles it, if calls cannot be put into it. Then the
        file is noted as unwatched."""
        try:
            return self.probes.code(self.get_data(self.path), self.path)
        except (SyntaxError, ValueError, RecursionError) as error:
            file = self.probes.files[os.path.realpath(self.path)]
            self.probes.unwatched[file] = f"{type(error).__name__}: {error}"
            return super().get_code(fullname)


class Reached:
    """What runs have reached when they are over: keys as in `Places`."""

    def __init__(self, of: Probes) -> None:
        self.keys: frozenset[str] = frozenset()
        self._of = of
        self._ran: set[int] = set()
        self._values: set[tuple[str, bool]] = set()

    def begin(self) -> None:
        """From now on, what is executed is noted."""
        setattr(builtins, RAN, self._ran.add)
        setattr(builtins, VALUED, self._value)

    def end(self) -> None:
        """All runs are over. Threads may go on meanwhile."""
        idle()
        now = {key for number in set(self._ran) for key in self._of.keys[number]}
        self.keys = frozenset(now.union(outcome(*each) for each in set(self._values)))

    def _value(self, key: str, value: Any) -> Any:
        """Note whether an operand is true. What has no truth value raises its exception in vLLM."""
        with suppress(Exception):
            self._values.add((key, bool(value)))
        return value


@contextmanager
def reached(of: Probes) -> Iterator[Reached]:
    """Record what is reached in the block in the files that were imported with these probes. What
    was reached is known after the block."""
    found = Reached(of)
    found.begin()
    try:
        yield found
    finally:
        found.end()
