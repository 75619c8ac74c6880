"""All guards. A new one is a file in this folder that has a `GUARD`."""

import kvproof.model.spec as room
from kvproof.model.discovery import declared
from kvproof.model.spec.guard import Guard

GUARDS: dict[str, Guard] = {guard.id: guard for guard in declared(room, "GUARD")}
"""The guards by id."""
