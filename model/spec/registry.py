"""All guards. A new guard is a file in this folder with a `GUARD`."""

import kvproof.model.spec as room
from kvproof.model.discovery import declared
from kvproof.model.spec.guard import Guard

GUARDS: dict[str, Guard] = {guard.id: guard for guard in declared(room, "GUARD")}
"""The guards by id."""
