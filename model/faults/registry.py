"""All faults. A new one is a file in this folder that has a `FAULT`."""

import kvproof.model.faults as room
from kvproof.model.discovery import declared
from kvproof.model.errors import unknown
from kvproof.model.faults.fault import Fault

FAULTS: dict[str, Fault] = {fault.name: fault for fault in declared(room, "FAULT")}
"""The faults by name, in the order of the alphabet."""


def fault_named(name: str) -> Fault:
    """The fault of this name. Raises UsageError with the nearest name."""
    if name not in FAULTS:
        raise unknown("fault", name, FAULTS, "model/faults")
    return FAULTS[name]
