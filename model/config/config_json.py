"""A cluster as plain data, as in traces and cluster files."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kvproof.model.config import Cluster
from kvproof.model.config.limits import Name
from kvproof.model.files.decoding import check_named_once, decoded_json

USE = "one JSON object that describes a cluster, as kvproof explain pd --json prints"


class ClusterFile(Cluster, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cluster in a file of its own, with notes that are no part of it: its purpose, and its
    number of distinct states, if they are known."""

    name: Name = "custom"
    about: Annotated[str, Meta(max_length=200)] = ""
    distinct_states: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster without the notes."""
        return Cluster(*(getattr(self, field) for field in Cluster.__struct_fields__))


def without_defaults(record: Struct) -> dict[str, Any]:
    """The fields of a cluster, or of a part of it, that differ from their defaults, as plain
    data."""
    short: dict[str, Any] = {}
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        if field.required or value != field.default:
            parts = isinstance(value, tuple) and value and isinstance(value[0], Struct)
            short[field.name] = list(map(without_defaults, value)) if parts else value
    return short


def parse(text: str, source: str) -> ClusterFile:
    """A cluster file from JSON text; `source` names the text in errors. Raises UsageError where the
    text describes no valid cluster."""
    file = decoded_json(text, ClusterFile, source, USE)
    check_named_once(text, source)
    return file
