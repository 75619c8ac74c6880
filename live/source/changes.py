"""What a head changes of a base: the functions of vLLM that may behave differently."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from kvproof.live.source import bodies
from kvproof.live.source.accounting import Accounting
from kvproof.live.source.files import Package, different, links
from kvproof.live.source.hunks import Hunk, clipped, hunks, outside
from kvproof.live.source.units import MODULE, Module, Unit

Kind = Literal["changed", "new", "removed"]


class Function(NamedTuple):
    """A function that changed, with all that is nested in it. `<class X>` is the body of a class
    without its methods, `<module>` the body of a module, or a file that is no program.

    `file` is relative to the package, as in `v1/request.py`. The lines are those of head, and of
    base where it was removed. `hunks` are the first and the last line of each of its changes in
    head; there is none where only an import changes what it means. Lines count from 1."""

    file: str
    name: str
    line: int
    end_line: int
    kind: Kind
    hunks: tuple[Hunk, ...] = ()

    @property
    def key(self) -> str:
        """The name that `reach` gives it: `v1/request.py:Request.num_tokens`."""
        return f"{self.file}:{self.name}"


class Changes(NamedTuple):
    """The changed functions: those that belong to the accounting on base or on head, and others."""

    accounting: tuple[Function, ...]
    others: tuple[Function, ...]


def changed(base: Path, head: Path) -> Changes:
    """The functions of a package `vllm` that may behave differently on head. Both are folders of
    the package. Raises UsageError where one has no package."""
    with _without_collector():
        before, after = Package(base), Package(head)
        files = different(before, after)
        after.share(before, files)
        functions = [each for file in files for each in _in_file(before, after, file)]
        for link in links(before, after):
            functions.append(_Named(Function(link, MODULE, 1, 1, "changed"), frozenset({""})))
        if not functions:
            return Changes((), ())
        sides = Accounting(before), Accounting(after)
    accounting: list[Function] = []
    others: list[Function] = []
    for function, tops in functions:
        ours = any(side.has(function.file, top) for side in sides for top in tops)
        (accounting if ours else others).append(function)
    return Changes(tuple(accounting), tuple(others))


class _Named(NamedTuple):
    """A function, and the names at the top of its module that it is or binds. The empty name is the
    module."""

    function: Function
    tops: frozenset[str]


def _in_file(base: Package, head: Package, file: str) -> Iterator[_Named]:
    """The functions that changed in a file."""
    before = base.module(file) if file in base.files else None
    after = head.module(file) if file in head.files else None
    unread = (file in base.files and before is None) or (file in head.files and after is None)
    kind: Kind = "changed"
    if file not in base.files:
        kind = "new"
    elif file not in head.files:
        kind = "removed"
    if unread:
        last = len(after.lines) if after is not None else 1
        yield _Named(Function(file, MODULE, 1, last, kind), frozenset({""}))
    elif before is None or after is None:
        for unit in (after or before).units.values():  # type: ignore[union-attr]
            yield _Named(_function(file, unit, kind, ()), _tops(unit.name))
    else:
        yield from _between(before, after, file)


def _between(before: Module, after: Module, file: str) -> Iterator[_Named]:
    lines: tuple[Hunk, ...] | None = None
    for name, tops in bodies.differing(before, after):
        old, new = before.units.get(name), after.units.get(name)
        if new is None:
            assert old is not None
            yield _Named(_function(file, old, "removed", ()), tops)
            continue
        lines = hunks(before.lines, after.lines) if lines is None else lines
        inside = outside(lines, after.inner(name))
        yield _Named(_function(file, new, "changed" if old else "new", inside), tops)


def _function(file: str, unit: Unit, kind: Kind, lines: tuple[Hunk, ...]) -> Function:
    within = clipped(lines, unit.line, unit.end_line)
    return Function(file, unit.name, unit.line, unit.end_line, kind, within)


def _tops(name: str) -> frozenset[str]:
    return frozenset({bodies.top(name)})


@contextmanager
def _without_collector() -> Iterator[None]:
    """A million nodes that all stay are no garbage: looking for some takes longer than parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
