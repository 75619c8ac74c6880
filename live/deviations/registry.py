"""All known deviations. A new deviation is a file in this folder with a `DEVIATION`."""

import kvproof.live.deviations as room
from kvproof.model.deviation import Deviation
from kvproof.model.discovery import declared

KNOWN: dict[str, Deviation] = {each.name: each for each in declared(room, "DEVIATION")}
"""The known deviations by name."""
