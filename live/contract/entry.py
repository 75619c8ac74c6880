"""One entry of the contract: something of vLLM that the adapter uses."""

import re
from typing import NamedTuple

_PARTS = re.compile(
    r"(?P<absent>!?)(?:(?P<module>[\w.]+):)?(?P<names>[\w.]+)"
    r"(?:\((?P<parameter>\w+)\)|~(?P<mentioned>\w+)| as (?P<known_as>\w+))?"
)


class Place(NamedTuple):
    """The place of a symbol of vLLM.

    `module:Class.name` is looked up in a module, `Class.name` on a real object (see
    `contract_samples`). `(name)` after either is a parameter of it. `module:Class~name` is a name
    or a key in the code of a class that is never instantiated. `Class.name as known` gives the name
    by which the adapter reads the attribute (see `aliases`). `!` before a place means that it must
    be absent, which identifies an older release.
    """

    absent: bool
    module: str
    names: tuple[str, ...]
    parameter: str
    mentioned: str
    known_as: str = ""

    @property
    def how(self) -> str:
        """The kind of lookup that finds the place."""
        if not self.names:
            return "module"
        if self.mentioned:
            return "code"
        if self.parameter:
            return "parameter"
        return "symbol" if self.module else "object"

    @property
    def owner(self) -> str:
        """The class that must have the last name; empty for names of a module."""
        return self.names[-2] if len(self.names) > 1 else ""

    @property
    def name(self) -> str:
        """The name without its module: `Class.name(parameter)`."""
        if not self.names:
            return self.module
        name = ".".join(self.names)
        if self.mentioned:
            return f"{name}.{self.mentioned}"
        return f"{name}({self.parameter})" if self.parameter else name


def place(text: str) -> Place:
    """The place that a text of the table describes."""
    if ":" not in text and text.startswith("vllm"):
        return Place(False, text, (), "", "")
    parts = _PARTS.fullmatch(text)
    assert parts is not None, text
    names = tuple(parts["names"].split("."))
    absent, module = bool(parts["absent"]), parts["module"] or ""
    known_as = parts["known_as"] or ""
    assert not (known_as and module), f"{text}: only what objects have is known by another name"
    parameter, mentioned = parts["parameter"] or "", parts["mentioned"] or ""
    return Place(absent, module, names, parameter, mentioned, known_as)


class Entry(NamedTuple):
    """A symbol that the adapter uses, and its purpose. If releases differ, the symbol has several
    places, and one of them is enough. Without any of them, the feature cannot be driven."""

    feature: str
    places: tuple[Place, ...]
    used_for: str

    @property
    def name(self) -> str:
        """The name of the entry: its first place, which is that of the newest release."""
        return self.places[0].name
