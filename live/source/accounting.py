"""Which functions of vLLM belong to the accounting: those of the modules that kvproof drives, and
what these use by name, in any module of the package."""

import ast
from collections.abc import Iterator

from kvproof.live.contract.table import TABLE
from kvproof.live.source import form, imports, logs, names
from kvproof.live.source.files import Package
from kvproof.live.source.units import MODULE, Module

FOLDERS = ("v1/core/", "distributed/kv_transfer/kv_connector/v1/nixl")
"""All files whose paths begin with these are of the accounting."""

FOLLOWED = (
    *(
        "v1/core/",
        "v1/kv_",
        "v1/request.py",
        "v1/outputs.py",
        "v1/metrics/",
        "v1/structured_output/",
    ),
    *("v1/hisparse/", "v1/utils.py", "v1/engine/__init__.py", "utils/", "sampling_params.py"),
    *("distributed/kv_transfer/", "distributed/kv_events.py", "distributed/ec_transfer/"),
)
"""What these use is of the accounting, in any file."""

EVERYTHING = "*"


class Accounting:
    """The functions of one package that belong to the accounting. `used` has the names at the top
    of each file, EVERYTHING where all are used."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.used: dict[str, set[str]] = {}
        self.tops: dict[str, dict[str, list[ast.stmt]]] = {}
        self.file = FOLDERS[0]
        self.left: list[tuple[str, str]] = []
        self.followed: dict[tuple[str, tuple[str, ...]], bool] = {}
        for file in package.files:
            if file.startswith(FOLDERS):
                self._need(file, EVERYTHING)
        for module, name in driven():
            self._follow(module, (name,))
        while self.left:
            self._use(*self.left.pop())

    def has(self, file: str, top: str) -> bool:
        """Whether a name at the top of a file is of the accounting; the empty name is any."""
        used = self.used.get(file, set())
        return EVERYTHING in used or top in used or (not top and bool(used))

    def _need(self, file: str, name: str) -> None:
        own = self.file.split("/")[0]
        if not self.file.startswith(FOLLOWED) and file.split("/")[0] != own:
            return
        used = self.used.setdefault(file, set())
        if name not in used:
            used.add(name)
            self.left.append((file, name))

    def _names(self, file: str) -> dict[str, list[ast.stmt]]:
        """The names at the top of a file, each with the statements that bind it."""
        if file not in self.tops:
            found: dict[str, list[ast.stmt]] = {}
            module = self.package.module(file)
            for statement in module.tree.body if module else ():
                for node in names.within([statement]):
                    for name in names.binds(node):
                        found.setdefault(name, []).append(statement)
            self.tops[file] = found
        return self.tops[file]

    def _use(self, file: str, name: str) -> None:
        """Follow what a name of a file uses."""
        module = self.package.module(file)
        if module is None:
            return
        self.file = file
        body = module.tree.body if name == EVERYTHING else self._names(file).get(name, [])
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            inside = {
                local: target
                for node in ast.walk(statement)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for local, target in imports.pairs(node, module.imports.package)
            }
            for parts in reads(statement):
                target = inside.get(parts[0])
                if target is not None:
                    self._follow(target.module, (target.attribute, *parts[1:]))
                if target is None or parts[0] in module.imports.targets:
                    self._look_up(file, module, parts)

    def _look_up(self, file: str, module: Module, parts: tuple[str, ...]) -> bool:
        """Follow a name that a file uses. Returns whether it is known there."""
        target = module.imports.targets.get(parts[0])
        if target is not None:
            self._follow(target.module, (target.attribute, *parts[1:]))
            return True
        if parts[0] in self._names(file):
            self._need(file, parts[0])
            return True
        return any([self._follow(star, parts) for star in module.imports.stars])

    def _follow(self, name: str, parts: tuple[str, ...]) -> bool:
        """Follow attributes of a module. Returns whether something was found."""
        parts = tuple(filter(None, parts))
        if (name, parts) not in self.followed:
            self.followed[name, parts] = False  # modules import each other in circles
            self.followed[name, parts] = self._attribute(name, parts)
        return self.followed[name, parts]

    def _attribute(self, name: str, parts: tuple[str, ...]) -> bool:
        file = self._file(name)
        if file is None:
            return False
        module = self.package.module(file)
        if module is None:
            self._need(file, EVERYTHING)
            return True
        if not parts:
            self._need(file, EVERYTHING)
            return True
        if self._look_up(file, module, parts):
            return True
        if self._file(f"{name}.{parts[0]}") is not None:
            return self._follow(f"{name}.{parts[0]}", parts[1:])
        if "__getattr__" in self._names(file):
            self._need(file, "__getattr__")
            target = module.imports.for_types.get(parts[0])
            return target is None or self._follow(target.module, (target.attribute, *parts[1:]))
        return False

    def _file(self, name: str) -> str | None:
        if name.split(".")[0] != "vllm":
            return None
        path = "/".join(name.split(".")[1:])
        choices = (f"{path}.py", f"{path}/__init__.py".lstrip("/"))
        return next((each for each in choices if each in self.package.files), None)


def driven() -> Iterator[tuple[str, str]]:
    """The modules and names that the contract has; the name is empty for a whole module."""
    for entry in TABLE:
        for place in entry.places:
            if place.module and place.names:
                yield place.module, place.names[0]


def reads(statement: ast.stmt) -> set[tuple[str, ...]]:
    """The names and attributes that a statement uses when it runs."""
    found: set[tuple[str, ...]] = set()
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if logs.logs(node) or (isinstance(node, ast.stmt) and logs.is_logger(node)):
            continue
        if isinstance(node, ast.If) and logs.for_types_only(node):
            stack.extend(node.orelse)
            continue
        if parts := names.chain(node):
            found.add(parts)
            continue
        stack.extend(_parts(node))
    return found


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node without annotations that nothing reads."""
    if isinstance(node, ast.arg):
        return
    if isinstance(node, ast.ClassDef) and not form.reads_annotations(node):
        for each in ast.iter_child_nodes(node):
            yield from _parts(each) if isinstance(each, ast.AnnAssign) else (each,)
        return
    if isinstance(node, names.FUNCTIONS):
        yield from (*node.decorator_list, *names.defaults(node.args), *node.body)
        return
    if isinstance(node, ast.AnnAssign):
        yield from filter(None, (node.target, node.value))
        return
    yield from ast.iter_child_nodes(node)


__all__ = ["EVERYTHING", "MODULE", "Accounting"]
