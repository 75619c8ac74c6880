"""The changed statements of changed functions, and what a run reaches with each line of a file.

A run reaches a changed function where it executes a changed statement of it, and of a function in
which no statement is changed (only what a name means) where it calls it. What head only removes
counts on base. A statement stands for its lines before the first statement within it. Log calls and
what a type checker alone reads are none.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher

from kvproof.gate.source import logs
from kvproof.gate.source.names import FUNCTIONS, Functions, chain
from kvproof.gate.source.units import MODULE, Module, Unit, bodies

Lines = range
"""The lines of a statement, counted from 1."""

Places = Mapping[str, Mapping[int, tuple[str, ...]]]
"""By file and line, the keys of what a run reaches with the line: the file (`v1/request.py:`), the
function (`v1/request.py:Request.append`), a changed statement (`v1/request.py:@12`; with @-12
it is one of base), and an operand of a changed condition (`v1/request.py:@12?3`, see `outcomes`;
what a run reaches is its value)."""


def key_of(file: str, line: int) -> str:
    """The key of a statement by its first line, which is negative on base."""
    return f"{file}:@{line}"


def place_of(key: str) -> tuple[str, int]:
    """The file and the first line of a statement; the line is negative on base."""
    file, _, line = key.rpartition(":@")
    return file, int(line)


def differing(
    before: Module | None, after: Module | None, name: str
) -> tuple[tuple[Lines, ...], ...]:
    """The changed statements of a function, of base and of head. Those of base are the ones for
    which head has nothing instead. The first statement in the body of a changed loop counts as
    changed: until it is executed, the change has done nothing. None for a file that is missing or
    is no program."""
    removed: list[Lines] = []
    added: list[Lines] = []
    for old, new in _parts(before, after, name):
        found = _within(after, name, new)
        added += (*found, *_entered(after, name, found))
        removed += () if found else _within(before, name, old)
    return tuple(dict.fromkeys(removed)), tuple(dict.fromkeys(added))


def changed_lines(
    before: Module | None, after: Module | None, name: str
) -> tuple[frozenset[int], frozenset[int]]:
    """The lines of a function that changed, of base and of head."""
    both = [*_parts(before, after, name)]
    return (
        frozenset(line for old, _ in both for line in old),
        frozenset(line for _, new in both for line in new),
    )


def declares(module: Module, name: str) -> bool:
    """Whether a function is there to be overridden, or refuses: it is abstract, or raises the
    exception that it is not implemented, and else only asserts something."""
    nodes = module.units[name].nodes
    return bool(nodes) and all(
        isinstance(node, FUNCTIONS) and _is_abstract(node) and all(map(_does_nothing, node.body))
        for node in nodes
    )


def stands_for_nothing(module: Module, other: Module | None, name: str) -> bool:
    """Whether a function, or the body of a module, that only one of two modules has, does nothing
    and takes the place of nothing: the method of a class that cannot be made without overriding it,
    or what has an empty body in a class, or a file, that the other has not. A class that extends
    another may take the place of that one."""
    nodes = module.units[name].nodes
    if name == MODULE:
        return other is None and all(map(_is_empty, module.tree.body))
    if not all(isinstance(node, FUNCTIONS) and all(map(_is_empty, node.body)) for node in nodes):
        return False
    if "." not in name:
        return other is None
    in_class = f"<class {name.rpartition('.')[0]}>"
    if in_class not in module.units or _extends(module.units[in_class]):
        return False
    if other is None or in_class not in other.units:
        return True
    marked = all(isinstance(node, FUNCTIONS) and _is_marked(node) for node in nodes)
    return marked and _is_abc(module.units[in_class])


def _extends(unit: Unit) -> bool:
    """Whether a class extends another than the one that makes it abstract."""
    classes = [node for node in unit.nodes if isinstance(node, ast.ClassDef)]
    return any(chain(base)[-1:] != ("ABC",) for node in classes for base in node.bases)


def _is_abc(unit: Unit) -> bool:
    """Whether a class says itself that it is abstract."""
    classes = [node for node in unit.nodes if isinstance(node, ast.ClassDef)]
    return bool(classes) and all(
        any(chain(each)[-1:] == ("ABC",) for each in node.bases)
        or any(chain(each.value)[-1:] == ("ABCMeta",) for each in node.keywords)
        for node in classes
    )


def _is_abstract(node: Functions) -> bool:
    return _is_marked(node) or any(isinstance(each, ast.Raise) for each in node.body)


def _is_marked(node: Functions) -> bool:
    return ("abstractmethod",) in (chain(each)[-1:] for each in node.decorator_list)


def _is_empty(node: ast.stmt) -> bool:
    """Whether a statement is a documentation, `pass`, or a `return` of nothing."""
    if isinstance(node, ast.Return):
        return node.value is None or getattr(node.value, "value", node) is None
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Pass)


def _does_nothing(node: ast.stmt) -> bool:
    """Whether a statement asserts something, refuses, or is empty."""
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(node, ast.Assert) or (_is_empty(node) and not isinstance(node, ast.Return))


def _parts(before: Module | None, after: Module | None, name: str) -> Iterator[tuple[Lines, Lines]]:
    """The parts of a function that differ, on base and on head."""
    if after is None or name.startswith("<") or name not in after.units:
        return
    new = after.units[name]
    if before is None or name not in before.units:
        yield range(0), range(new.line, new.end_line + 1)
        return
    old = before.units[name]
    matcher = SequenceMatcher(None, before.text(old), after.text(new), autojunk=False)
    for tag, first, end, first_new, end_new in matcher.get_opcodes():
        if tag != "equal":
            yield (
                range(old.line + first, old.line + end),
                range(new.line + first_new, new.line + end_new),
            )


def _within(module: Module | None, name: str, lines: Lines) -> list[Lines]:
    """The statements of a function on these lines."""
    if module is None or not lines:
        return []
    statements = of(module, module.units[name])
    return [e for e in statements if max(e.start, lines.start) < min(e.stop, lines.stop)]


def _entered(module: Module | None, name: str, headers: Iterable[Lines]) -> list[Lines]:
    """The first statement in the body of each loop over values that begins on these lines."""
    starts = {lines.start for lines in headers}
    if module is None or not starts:
        return []
    unit = module.units[name]
    inside = (part for node in unit.nodes for part in ast.walk(node))
    loops = (part for part in inside if isinstance(part, ast.For | ast.AsyncFor))
    first = {loop.body[0].lineno for loop in loops if loop.lineno in starts}
    return [lines for lines in of(module, unit) if lines.start in first]


def of(module: Module, unit: Unit) -> tuple[Lines, ...]:
    """The statements of a function that a run can execute, in order."""
    found: set[Lines] = set()
    for node in unit.nodes:
        idle = logs.IdleStatements(node, lambda: module.has_logger)
        for part in ast.walk(node):
            if part is node or (isinstance(part, ast.stmt) and idle(part)):
                continue
            lines = lines_of(part)
            if lines:
                found.add(lines)
    return tuple(sorted(found, key=lambda lines: (lines.start, lines.stop)))


def refusals(module: Module) -> frozenset[int]:
    """The lines of statements that only raise an exception, with the assignments in front that make
    its message, and of those that only log."""
    found: set[int] = set()
    for node in ast.walk(module.tree):
        for body in bodies(node):
            before_raise = False
            for each in reversed(body):
                log = module.has_logger and logs.logs(each)
                makes = before_raise and isinstance(each, ast.Assign | ast.AnnAssign)
                before_raise = isinstance(each, ast.Raise) or makes or (before_raise and log)
                if before_raise or log:
                    found.update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return frozenset(found)


def raised(module: Module | None, lines: Collection[int]) -> list[str]:
    """What the statements that begin on these lines raise, without its words."""
    nodes = () if module is None else ast.walk(module.tree)
    whole = [each.exc for each in nodes if isinstance(each, ast.Raise) and each.lineno in lines]
    called = (each.func if isinstance(each, ast.Call) else each for each in whole)
    return sorted(ast.unparse(each) for each in called if each is not None)


def lines_of(node: ast.AST) -> Lines | None:
    """The lines with which a statement, a handler of exceptions or a case begins."""
    begins = node.pattern if isinstance(node, ast.match_case) else node
    if isinstance(node, ast.Global | ast.Nonlocal) or (
        isinstance(node, ast.AnnAssign) and node.value is None
    ):
        return None  # no instruction of Python
    if not isinstance(begins, ast.pattern | ast.stmt | ast.ExceptHandler):
        return None
    first, last = begins.lineno, begins.end_lineno or begins.lineno
    inner = getattr(node, "body", None) or getattr(node, "cases", None)
    if inner:
        begin = inner[0].pattern if isinstance(inner[0], ast.match_case) else inner[0]
        last = max(first, begin.lineno - 1)
    return range(first, last + 1)


def places(
    file: str, module: Module, statements: Iterable[tuple[str, Lines]]
) -> dict[int, tuple[str, ...]]:
    """What a run reaches with each line of a file on one side. `statements` has the changed ones,
    each with its key."""
    found: dict[int, set[str]] = {}
    for line, name in _inside(module):
        found.setdefault(line, set()).update((f"{file}:", f"{file}:{name}"))
    for key, lines in statements:
        for line in lines:
            found.setdefault(line, set()).add(key)
    return {line: tuple(sorted(keys)) for line, keys in found.items()}


def _inside(module: Module) -> Iterator[tuple[int, str]]:
    """The lines that are executed when a function is called, each with the function. A line on
    which a definition begins is executed with the definition, so it is none."""
    for unit in module.units.values():
        for node in unit.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                last = node.end_lineno or node.lineno
                first = max(node.body[0].lineno, node.lineno + 1) if last > node.lineno else last
                yield from ((line, unit.name) for line in range(first, last + 1))
