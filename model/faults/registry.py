"""All faults. A new one is a decorated function in any module of this folder."""

import kvproof.model.faults as folder
from kvproof.model.discovery import modules
from kvproof.model.errors import unknown
from kvproof.model.faults.fault import REGISTERED, Fault

modules(folder)
FAULTS: dict[str, Fault] = dict(sorted(REGISTERED.items()))
"""The faults by name, in the order of the alphabet."""


def fault_named(name: str) -> Fault:
    """The fault of this name. Raises UsageError with the nearest name."""
    if name not in FAULTS:
        raise unknown("fault", name, FAULTS, "model/faults")
    return FAULTS[name]
