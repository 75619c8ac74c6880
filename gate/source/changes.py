"""What a head changes of a base: the functions of vLLM that may behave differently."""

import gc
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from kvproof.gate.difference.order import touched
from kvproof.gate.source import config_options, statements
from kvproof.gate.source.accounting import Accounting, is_home, is_root
from kvproof.gate.source.files import Package, different, links
from kvproof.gate.source.outcomes import Condition, Conditions, line_of, moved
from kvproof.gate.source.parts import (
    CONNECTED,
    belongs,
    for_people,
    may_belong,
    of_device,
    unused,
)
from kvproof.gate.source.statements import (
    Lines,
    Places,
    changed_lines,
    declares,
    differing,
    key_of,
    places,
    raised,
    stands_for_nothing,
)
from kvproof.gate.source.units import MODULE, Module, differing_units, top_of
from kvproof.model.plans.config_options import ConfigOptions

COMPARED_MAX = 60
"""Files outside the accounting that are compared function by function."""

USED = "used by the accounting"
"""Instead of a part, for what lies outside and is used by name by code that kvproof drives."""

NAME = re.compile(r"[^\W\d]\w+")

OUTSIDE = "it is in no part of the accounting, and uses none of it by name"

NOT_NAMED = "it is new, and nothing of head names it"

NO_BODY = "; it has no body, so no run can execute it"

USED_WHY = "code that kvproof drives names it"

Kind = Literal["changed", "new", "removed"]


class ChangedFunction(NamedTuple):
    """A function that changed, with all that is nested in it. `<class X>` is the body of a class
    without its methods, `<module>` the body of a module, or a file that is no program.

    `file` is relative to the package, as in `v1/request.py`. The line is the one of head where it
    begins, of base where it was removed, and the first changed one of a body. Lines count from 1.

    `statements` are the keys of the changed statements: a run reaches the function where it
    executes one. There is none where only what a name means is changed. `raises` are those of them
    that only raise an exception or log, and `words` are the names in them all and in what they
    replace. Where both sides only raise the same, in other words, it `rewords`. `conditions` are
    the changed conditions, and those around changed statements.

    `part` is the part of the accounting to which it belongs, empty for one outside, and `why` says
    why. `called` says that code which kvproof drives may call it, by the names that it uses. One
    that `declares` is there to be overridden on both sides, so no run executes its change. Of a
    body, `tops` are the names at the top of its module that it binds; the empty name is the
    module."""

    file: str
    name: str
    line: int
    kind: Kind
    part: str = ""
    why: str = ""
    called: bool = False
    statements: tuple[str, ...] = ()
    raises: frozenset[str] = frozenset()
    rewords: bool = False
    words: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    declares: bool = False
    tops: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """The name that `reach` gives it: `v1/request.py:Request.num_tokens`."""
        return f"{self.file}:{self.name}"

    def ran(self, reached: Collection[str]) -> bool:
        """Whether runs that reach these keys reach the function: execute a changed statement or,
        where it has none or only rewords refusals, call it."""
        if self.rewords or not self.statements:
            return bool(touched(reached, [self.key]))
        return any(each in reached for each in self.statements)

    @property
    def all_words(self) -> frozenset[str]:
        """The names in the changed statements and in the conditions around them."""
        texts = (operand.text for each in self.conditions for operand in each.operands)
        return self.words.union(*map(NAME.findall, texts))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The keys of the values of operands of changed conditions that are waited for."""
        operands = (operand for each in self.conditions for operand in each.operands)
        return tuple(each.had(value) for each in operands for value in each.awaited)

    @property
    def awaited(self) -> frozenset[str]:
        """The keys of what has to be seen of its change: the statements, but for refusals, and the
        values of operands."""
        seen = frozenset(self.statements) - self.raises | {*self.outcomes}
        return frozenset() if self.declares else seen

    def not_run(self, reached: Collection[str]) -> list[str]:
        """The changed statements that these runs do not execute, and the values of operands of
        changed conditions that they do not see, in words: first the operands that were constant,
        which explain the rest. What only raises an exception or logs is none."""
        if self.declares:
            return []
        lines = [each for each in self.statements if each not in {*reached, *self.raises}]
        left = {statements.place_of(each)[1] for each in lines}
        constant, explained = list[str](), set[int]()
        for each in self.conditions:
            unseen = each.unseen(reached)
            if not (unseen or left & each.guarded):
                continue
            if told := each.constant(reached):
                constant += told
                explained |= each.guarded
            else:
                left.update(operand.line for operand in unseen[:1])
        return [*constant, *map(line_of, sorted(left - explained))]

    def ran_whole(self, reached: Collection[str]) -> bool:
        """Whether these runs execute the whole change, and see all that its conditions may do."""
        return self.declares or (self.ran(reached) and not self.not_run(reached))


def unreached(
    functions: Iterable[ChangedFunction], reached: Callable[[ChangedFunction], Collection[str]]
) -> list[ChangedFunction]:
    """The functions that runs can execute and did not: `reached` gives the keys of what was reached
    where a function has something to do."""
    return [each for each in functions if not (each.declares or each.ran(reached(each)))]


class Changes(NamedTuple):
    """The changed functions: those that belong to the accounting on base or on head or are used by
    it, with files that are no program any more, and others. `places` says what a run reaches with
    each line of the files of the former, on base and on head. `options` are those of vLLM's configs
    that they name, and that kvproof does not model."""

    accounting: tuple[ChangedFunction, ...]
    others: tuple[ChangedFunction, ...]
    places: tuple[Places, Places] = ({}, {})
    options: ConfigOptions = ()

    @property
    def judged(self) -> list[ChangedFunction]:
        """The functions of which all of the change has to be executed: not of what the accounting
        only uses, and not of what runs on a device alone."""
        ours = (each for each in self.accounting if each.part != USED)
        return [each for each in ours if not of_device(each.file)]


def changed(base: Path, head: Path) -> Changes:
    """The functions of a package `vllm` that may behave differently on head. Both are folders of
    the package. Where more than COMPARED_MAX files outside the accounting differ, each of them is
    one `<module>`. Raises UsageError where a folder has no package."""
    with _without_collector():
        before, after = Package(base), Package(head)
        files = different(before, after)
        after.share(before, files)
        ours = _Ours(before, after)
        foreign = [file for file in files if not _has_part_of(ours, before, after, file)]
        coarse = set(foreign if len(foreign) > COMPARED_MAX else ())
        found = [
            each
            for file in files
            for each in (_whole if file in coarse else _in_file)(before, after, file)
        ]
        found += [ChangedFunction(link, MODULE, 1, "changed") for link in links(before, after)]
    spoiled = {file for file in files if file not in coarse and _spoiled(before, after, file)}
    new = {each.key: each.name for each in found if each.kind == "new"}
    idle = unused(after, new)
    placed = []
    for function in found:
        tops = function.tops or frozenset({top_of(function.name)})
        called = function.file in spoiled or ours.has(function.file, tops)
        modules = [] if function.file in coarse else [before, after]
        part, why = _part(function, [each for each in modules if function.file in each.files])
        called = called or (part in CONNECTED and ours.may_reach(function.file, tops))
        if called and not part and not for_people(function.name):
            part, why = USED, USED_WHY
        if not part or function.key in idle:
            part, why = "", NOT_NAMED if function.key in idle else OUTSIDE
        placed.append(function._replace(part=part, why=why, called=called))
    accounting, by_line = _with_statements(before, after, [e for e in placed if e.part])
    others = tuple(each for each in placed if not each.part)
    words = frozenset[str]().union(*(each.all_words for each in accounting))
    changed = dict.fromkeys(each.file for each in accounting)
    options = config_options.named(words, (before, after), changed)
    return Changes(accounting, others, by_line, options)


def _with_statements(
    base: Package, head: Package, functions: Sequence[ChangedFunction]
) -> tuple[tuple[ChangedFunction, ...], tuple[Places, Places]]:
    """Functions with their changed statements, and the places of their files on both sides."""
    keys: dict[str, list[list[tuple[str, Lines]]]] = {each.file: [[], []] for each in functions}
    of_module = cache(Conditions)
    found = []
    for each in functions:
        modules = _readable(base, each.file), _readable(head, each.file)
        if _only_declared(*modules, each.name):
            each = each._replace(declares=True, why=each.why + NO_BODY)
        elif any(both := differing(*modules, each.name)):
            of_lines = changed_lines(*modules, each.name)
            alone = each.kind == "changed" and not all(of_lines)
            old, new = map(raised, modules, of_lines)
            each = each._replace(rewords=all(of_lines) and old == new)
            for side, module in enumerate(modules):
                if module is not None and (lines := of_lines[side]):
                    of_side = of_module(each.file, module, 2 * side - 1)
                    here = tuple(of_side.of(lines, alone))
                    each, known = _on_side(each, module, of_side, both[side], lines, here)
                    keys[each.file][side] += known
        found.append(each)
    elsewhere = moved([condition for each in found for condition in each.conditions])
    found = [
        each._replace(conditions=tuple(one.without(elsewhere) for one in each.conditions))
        for each in found
    ]
    made: list[Places] = []
    for side, package in enumerate((base, head)):
        of_file = {file: _readable(package, file) for file in keys}
        made.append({f: places(f, m, keys[f][side]) for f, m in of_file.items() if m is not None})
    return tuple(found), (made[0], made[1])


def _on_side(
    function: ChangedFunction,
    module: Module,
    conditions: Conditions,
    changed: Iterable[Lines],
    lines: frozenset[int],
    here: tuple[Condition, ...],
) -> tuple[ChangedFunction, list[tuple[str, Lines]]]:
    """A function with what is changed of it on one side: these statements, and the conditions on
    these lines and around them (`here`). Beside it, the keys of all of them, each with its
    lines."""
    new = {key_of(function.file, conditions.sign * each.start): each for each in changed}
    of_statements = {line for each in new.values() for line in each}
    text = "\n".join(module.lines[line - 1] for line in sorted(lines | of_statements))
    found = function._replace(
        statements=(*function.statements, *new),
        raises=function.raises.union(
            key for key, each in new.items() if each.start in conditions.refusals
        ),
        rewords=function.rewords and lines <= conditions.refusals,
        conditions=(*function.conditions, *here),
        words=function.words.union(NAME.findall(text)),
    )
    operands = [(o.key, abs(o.line)) for each in here for o in each.operands]
    return found, [*new.items(), *((key, range(line, line + 1)) for key, line in operands)]


def _only_declared(before: Module | None, after: Module | None, name: str) -> bool:
    """Whether no run can execute a change, and none has to. One that is new or removed takes, or
    took, the place of another, which may do something."""
    old, new = ((m if m is not None and name in m.units else None) for m in (before, after))
    if old is not None and new is not None:
        return declares(old, name) and declares(new, name)
    if (there := new if old is None else old) is None:
        return False
    return stands_for_nothing(there, before if old is None else after, name)


def _readable(package: Package, file: str) -> Module | None:
    return package.module(file) if file in package.files else None


def _has_part_of(ours: "_Ours", base: Package, head: Package, file: str) -> bool:
    """Whether a file may have code of the accounting."""
    if ours.has_part_of(file):
        return True
    return any(
        may_belong(file, package.files[file]) for package in (base, head) if file in package.files
    )


def _part(function: ChangedFunction, packages: Iterable[Package]) -> tuple[str, str]:
    """The part of the accounting to which a function belongs, and why; empty for one outside."""
    modules = [package.module(function.file) for package in packages]
    return belongs(function.file, function.name, modules) or ("", "")


class _Ours:
    """The accounting of two packages. It is looked for only where a file needs it."""

    def __init__(self, base: Package, head: Package) -> None:
        self.packages = base, head

    @cached_property
    def sides(self) -> tuple[Accounting, ...]:
        return tuple(map(Accounting, self.packages))

    @cached_property
    def connected(self) -> tuple[Accounting, ...]:
        """With the connectors that the kit drives."""
        return tuple(Accounting(each, connectors=True) for each in self.packages)

    def may_reach(self, file: str, tops: Iterable[str]) -> bool:
        """Whether a connector that the kit drives may call a function."""
        return is_home(file) or any(side.has(file, top) for side in self.connected for top in tops)

    def has_part_of(self, file: str) -> bool:
        return is_root(file) or any(file in side.used for side in self.sides)

    def has(self, file: str, tops: Iterable[str]) -> bool:
        return is_root(file) or any(side.has(file, top) for side in self.sides for top in tops)


def _spoiled(base: Package, head: Package, file: str) -> bool:
    """Whether head made a program into none. Whoever imports it dies, so head has to be run."""
    no_program = file.endswith(".py") and file in head.files and head.module(file) is None
    return no_program and (file not in base.files or base.module(file) is not None)


def _kind(base: Container[str], head: Container[str], name: str) -> Kind:
    """What head does with a name that one side has at least."""
    if name not in base:
        return "new"
    return "changed" if name in head else "removed"


def _whole(base: Package, head: Package, file: str) -> Iterator[ChangedFunction]:
    """A file that changed, as one function."""
    yield ChangedFunction(file, MODULE, 1, _kind(base.files, head.files, file))


def _in_file(base: Package, head: Package, file: str) -> Iterator[ChangedFunction]:
    """The functions that changed in a file."""
    sides = [package.module(file) for package in (base, head) if file in package.files]
    if None in sides:
        yield from _whole(base, head, file)
        return
    modules = [module for module in sides if module is not None]
    if len(modules) == 2:
        yield from _between(modules[0], modules[1], file)
        return
    kind = _kind(base.files, head.files, file)
    for unit in modules[0].units.values():
        yield ChangedFunction(file, unit.name, unit.line, kind)


def _between(before: Module, after: Module, file: str) -> Iterator[ChangedFunction]:
    for name, tops in differing_units(before, after):
        line = _begins(before, after, name) if name in after.units else before.units[name].line
        kind = _kind(before.units, after.units, name)
        yield ChangedFunction(file, name, line, kind, tops=tops)


def _begins(before: Module, after: Module, name: str) -> int:
    """The line where a function begins, or the first one of a body that base has nowhere."""
    unit, known = after.units[name], {*before.lines}
    inner = {line for first, last in after.inner(name) for line in range(first, last + 1)}
    lines = range(unit.line, unit.end_line + 1) if name.startswith("<") else ()
    new = (n for n in lines if n not in inner and after.lines[n - 1] not in known)
    return next(new, unit.line)


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
