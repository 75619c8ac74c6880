"""A run of a cluster as it is taken."""

from msgspec import Struct

from kvproof.model.config import Cluster
from kvproof.model.events import Event


class Taken(Struct, frozen=True, forbid_unknown_fields=True):
    """A run as it is taken: the cluster with the jobs, and the events in order. The first `before`
    of them serve other requests, and some of these need not be possible."""

    cluster: Cluster
    events: tuple[Event, ...]
    before: int = 0
