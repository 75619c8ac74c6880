"""The engines of records as a cluster. A running engine does not have the limits of a cluster."""

from msgspec.structs import force_setattr

from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.config.engine import Role
from kvproof.model.records.lines import RecordedEngine


def pair(prefill: RecordedEngine, decode: RecordedEngine) -> Cluster:
    """The cluster of a prefill engine P and a decode engine D."""
    engines = _engine(prefill, "P", "prefill"), _engine(decode, "D", "decode")
    cluster = Cluster("joined", (EngineConfig("E", (Group("full", 1),)),))
    force_setattr(cluster, "engines", engines)
    vars(cluster).clear()  # what was computed of the engines before
    return cluster


def _engine(recorded: RecordedEngine, name: str, role: Role) -> EngineConfig:
    """The options that pairing depends on."""
    engine = EngineConfig(name, (Group("full", 1),))
    groups = []
    for each in recorded.groups:
        group = Group("full", 1)
        for field in each.__struct_fields__:
            force_setattr(group, field, getattr(each, field))
        groups.append(group)
    options = {"groups": tuple(groups), "num_blocks": recorded.num_blocks, "role": role}
    for field, value in (options | {"drafts": recorded.drafts}).items():
        force_setattr(engine, field, value)
    vars(engine).clear()
    return engine
