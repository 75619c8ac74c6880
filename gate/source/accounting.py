"""Which functions of vLLM belong to the accounting.

They are those of the modules that kvproof drives, and what these use by name: a function, a class,
a constant, in any module of the package, and so on. What models and kernels use is not followed:
the accounting does not depend on it, and it would lead to all of vLLM.
"""

import ast
from collections.abc import Iterator

from kvproof.gate.source.files import Package
from kvproof.gate.source.units import GETATTR, Module
from kvproof.gate.source.uses import Parts
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.contract.features import FEATURES
from kvproof.live.contract.table import TABLE

FOLDERS = ("v1/core/", "distributed/kv_transfer/kv_connector/v1/nixl")
"""All files whose paths begin with these are of the accounting."""

FOLLOWED = (
    *("v1/core/", "v1/kv_", "v1/request.py", "v1/outputs.py", "v1/metrics/", "v1/utils.py"),
    *("v1/structured_output/", "v1/hisparse/", "v1/engine/__init__.py", "sampling_params.py"),
    *("utils/", "distributed/kv_transfer/", "distributed/kv_events.py", "distributed/ec_transfer/"),
)
"""What the files of these folders use is of the accounting wherever it is. What others use is only
if it is in their own folder at the top of the package."""

EVERYTHING = "*"

GENERATED = "_version.py"
"""It differs between any two builds, and says only which build it is."""


def driven() -> Iterator[tuple[str, str]]:
    """The modules and names that the contract has of what is driven."""
    for entry in TABLE:
        for place in entry.places:
            if place.module and place.names and FEATURES[entry.feature].drives:
                yield place.module, place.names[0]


DRIVEN = frozenset(
    "/".join(module.split(".")[1:]) + ".py" for module, name in driven() if not name.isupper()
)
"""The files of the modules of which the contract has a function or a class. Of a package, which has
no such file, and of a module of which the contract has only constants, as of `vllm.envs`, only what
the contract names is of the accounting."""


HOMES = tuple(sorted({home for each in SHIPPED.values() for home in each.home}))
"""The files and folders of the connectors that the kit drives."""


def is_root(file: str) -> bool:
    """Whether all functions of a file are of the accounting."""
    return file.startswith(FOLDERS) or file in DRIVEN


def is_home(file: str) -> bool:
    """Whether a file is of a connector that the kit drives."""
    return f"{file}/".startswith(tuple(f"{home}/" for home in HOMES))


class Accounting:
    """The functions of one package that belong to the accounting. `used` has the names at the top
    of each file, EVERYTHING where all are used. `within` is the folder that is not left now. With
    `connectors` it also has what the connectors use that the kit drives."""

    def __init__(self, package: Package, *, connectors: bool = False) -> None:
        self.package = package
        self.used: dict[str, set[str]] = {}
        self.left: list[tuple[str, str]] = []
        self.lookups: list[tuple[str, str, Parts]] = []
        self.seen: set[tuple[str, str, Parts]] = set()
        self.within = ""
        for file in package.files:
            if is_root(file) or (connectors and is_home(file)):
                self._need(file, EVERYTHING)
        for module, name in driven():
            self._ask(module, (name,))
        while self.left or self.lookups:
            if self.lookups:
                self.within, module, parts = self.lookups.pop()
                self._attribute(module, parts)
            else:
                self._use(*self.left.pop())

    def has(self, file: str, top: str) -> bool:
        """Whether a name at the top of a file is of the accounting; the empty name is any."""
        used = self.used.get(file, set())
        return EVERYTHING in used or top in used or (not top and bool(used))

    def _need(self, file: str, name: str) -> None:
        """A name at the top of a file is of the accounting."""
        if file == GENERATED or not f"{file}/".startswith(self.within):
            return
        used = self.used.setdefault(file, set())
        if name not in used:
            used.add(name)
            self.left.append((file, name))

    def _ask(self, module: str, parts: Parts) -> None:
        """An attribute of a module is used, or the module itself."""
        lookup = self.within, module, tuple(filter(None, parts))
        if lookup not in self.seen:
            self.seen.add(lookup)
            self.lookups.append(lookup)

    def _use(self, file: str, name: str) -> None:
        """Follow what a name of a file uses."""
        module = self.package.module(file)
        if module is None or name == GETATTR:  # what is asked of it is followed where it is asked
            return
        self.within = "" if file.startswith(FOLLOWED) else f"{file.split('/')[0]}/"
        for statement in module.tree.body if name == EVERYTHING else module.tops.get(name, ()):
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                self._statement(file, module, statement)

    def _statement(self, file: str, module: Module, statement: ast.stmt) -> None:
        used = module.used(statement)
        for parts in used.parts:
            target = used.imports.get(parts[0])
            if target is not None:
                self._ask(target.module, (target.attribute, *parts[1:]))
            if target is None or parts[0] in module.imports.targets:
                self._look_up(file, module, parts)

    def _look_up(self, file: str, module: Module, parts: Parts) -> bool:
        """Follow a name of a module. Returns whether the module itself binds it."""
        target = module.imports.targets.get(parts[0])
        if target is not None:
            self._ask(target.module, (target.attribute, *parts[1:]))
            return True
        if parts[0] in module.tops:
            self._need(file, parts[0])
            return True
        for star in module.imports.stars:
            self._ask(star, parts)
        return False

    def _attribute(self, name: str, parts: Parts) -> None:
        """Follow an attribute of a module."""
        file = self._file(name)
        if file is None:
            return
        module = self.package.module(file)
        if module is None or not parts:
            self._need(file, EVERYTHING)
            return
        known = self._look_up(file, module, parts)
        if GETATTR in module.tops:
            self._need(file, GETATTR)
            target = module.imports.for_types.get(parts[0])
            if not known and target is not None:
                self._ask(target.module, (target.attribute, *parts[1:]))
        if not known and self._file(f"{name}.{parts[0]}") is not None:
            self._ask(f"{name}.{parts[0]}", parts[1:])

    def _file(self, name: str) -> str | None:
        if name.split(".")[0] != "vllm":
            return None
        path = "/".join(name.split(".")[1:])
        choices = (f"{path}.py", f"{path}/__init__.py".lstrip("/"))
        return next((each for each in choices if each in self.package.files), None)
