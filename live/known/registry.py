"""The table of all known findings. A new one is a decorated function in a module of this folder."""

from importlib import import_module
from pkgutil import iter_modules

import kvproof.live.known as package
from kvproof.model.known_finding import KnownFinding


def _declared() -> dict[str, KnownFinding]:
    """The known findings of all modules beside this one, in the order of their names."""
    found: dict[str, KnownFinding] = {}
    for module in iter_modules(package.__path__):
        if module.name != "registry" and not module.ispkg:
            values = vars(import_module(f"{package.__name__}.{module.name}")).values()
            found |= {each.name: each for each in values if isinstance(each, KnownFinding)}
    return dict(sorted(found.items()))


KNOWN: dict[str, KnownFinding] = _declared()
"""The known findings by name."""
