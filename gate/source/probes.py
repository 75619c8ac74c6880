"""The changed files of vLLM, imported with a call at the beginning of each function that says that
it was called, and with one around each operand of a changed condition that says its value. Nothing
else in them is different: no line, no name, no value.

In a function that may stop and go on later (`yield`, `await`), the call is also before each
statement.
"""

import ast
import builtins
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from kvproof.gate.source.names import FUNCTIONS, Functions
from kvproof.gate.source.outcomes import MARK, conditions, number_of
from kvproof.gate.source.statements import Places
from kvproof.gate.source.units import bodies

CALLED, FOLLOWED = "_kvproof_called", "_kvproof_followed"
"""The names by which functions say that they were called, with the number of the function: one in
which each line stands for the same, and another."""

VALUED = "_kvproof_valued"
"""The name by which an operand says its value, with the key of the operand. It returns the
value."""

NESTED = (*FUNCTIONS, ast.Lambda, ast.ClassDef)


def idle() -> None:
    """From now on, a call says nothing."""
    setattr(builtins, CALLED, bool)
    setattr(builtins, FOLLOWED, bool)
    setattr(builtins, VALUED, _value)


def _value(_key: str, value: object) -> object:
    return value


class Probes:
    """The files of `places` in a folder that is a package. `files` has them by path, and `keys` has
    what each call stands for. `unwatched` are the files that were imported without calls, each with
    the reason."""

    def __init__(self, package: Path, places: Places) -> None:
        self.places = {
            file: {line: tuple(k for k in keys if MARK not in k) for line, keys in of_file.items()}
            for file, of_file in places.items()
        }
        self._operands = {
            file: {number_of(k): k for keys in of_file.values() for k in keys if MARK in k}
            for file, of_file in places.items()
        }
        self.files = {os.path.realpath(package / file): file for file in places}
        self.keys: list[tuple[str, ...]] = []
        self.unwatched: dict[str, str] = {}
        idle()

    def install(self) -> None:
        """From now on, these files are imported with their calls."""
        if self.files:
            sys.meta_path.insert(0, _Finder(self))

    def code(self, content: bytes, path: str) -> CodeType:
        """The program of a file with its calls."""
        tree = ast.parse(content)
        of_file = self.files[os.path.realpath(path)]
        self.files.setdefault(path, of_file)  # by which frames name it
        operands = [place for _, places in conditions(tree) for place in places]
        for number, key in self._operands[of_file].items():
            place = operands[number]
            place.put(_valued(key, place.node))
        for node in [*ast.walk(tree)]:
            if isinstance(node, FUNCTIONS):
                self._put(node, of_file)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def has_lines(self, code: CodeType) -> bool:
        """Whether lines of a function stand for different things."""
        file = self.files.get(code.co_filename)
        if file is None:
            return False
        begins = 0 if code.co_name.startswith("<") else code.co_firstlineno  # of a definition
        lines = {line for *_, line in code.co_lines() if line and line != begins}
        return self._differ(file, sorted(lines))

    def _differ(self, file: str, lines: Sequence[int]) -> bool:
        return len({self.places[file].get(line, ()) for line in lines}) > 1

    def _put(self, node: Functions, file: str) -> None:
        """Put calls into a function."""
        first = node.body[0]
        lines = range(first.lineno, (node.end_lineno or first.lineno) + 1)
        number, follow = len(self.keys), self._differ(file, lines)
        self.keys.append(self.places[file].get(first.lineno, ()))
        documentation, rest = node.body[:1], node.body[1:]
        if not _is_documentation(first):
            documentation, rest = [], node.body
        name = FOLLOWED if follow else CALLED
        if follow and any(map(_stops, _within(node))):
            for body in [body for part in _within(node) for body in bodies(part)]:
                body[:] = _with_calls(body, name, number)
            rest = _with_calls(rest, name, number)
        node.body = [*documentation, _call(name, number, (rest or documentation)[0]), *rest]


def _with_calls(body: Sequence[ast.stmt], name: str, number: int) -> list[ast.stmt]:
    """Statements with a call before each."""
    return [each for one in body for each in (_call(name, number, one), one)]


def _call(name: str, number: int, at: ast.stmt) -> ast.stmt:
    """A statement that says that a function was called, on the line of another."""
    called = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number)], [])
    made = ast.copy_location(ast.Expr(called), at)
    for part in ast.walk(made):
        ast.copy_location(part, at)
        if isinstance(part, ast.expr | ast.stmt):
            part.end_lineno, part.end_col_offset = at.lineno, at.col_offset
    return made


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
        if not isinstance(part, NESTED):
            yield part
            yield from _within(part)


def _stops(node: ast.AST) -> bool:
    return isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith)


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
