"""The connectors of an engine: NIXL, a store, or both in vLLM's `MultiConnector`.

NIXL comes first: a request loads from the store what P does not offer. A `MultiConnector` calls
every connector, and gives each its own part of a step's metadata.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kvproof.live import options
from kvproof.model import config


class Parts(NamedTuple):
    """The connectors of an engine, or the metadata of each. A connector that the engine lacks is
    None."""

    nixl: Any
    store: Any


def settings(cfg: config.EngineConfig, extra: Mapping[str, Any], pushes: bool) -> dict[str, Any]:
    """The settings of `KVTransferConfig` for the connectors of an engine. `extra` has settings of
    NIXL alone."""
    chosen: list[dict[str, Any]] = []
    if cfg.connected:
        kind = "NixlPushConnector" if pushes else "NixlConnector"
        chosen.append({"kv_connector": kind, "kv_connector_extra_config": dict(extra)})
    if cfg.store:
        module = {"kv_connector_module_path": "kvproof.live.store"}
        chosen.append({"kv_connector": "StoreConnector", **module})
    if len(chosen) == 1:
        return chosen[0]
    role = {"kv_role": options.kv_role(cfg)}
    children = [each | role for each in chosen]
    extra_config = {"connectors": children}
    return {"kv_connector": "MultiConnector", "kv_connector_extra_config": extra_config}


def connectors(cfg: config.EngineConfig, connector: Any) -> Parts:
    """The single connectors in the connector of a scheduler."""
    return _parts(cfg, connector, lambda: connector._connectors)


def metadata(cfg: config.EngineConfig, made: Any) -> Parts:
    """The metadata of each single connector in the connector metadata of a step."""
    return _parts(cfg, made, lambda: made.metadata)


def _parts(cfg: config.EngineConfig, whole: Any, each: Callable[[], Iterable[Any]]) -> Parts:
    if cfg.connected and cfg.store:
        return Parts(*each())
    return Parts(whole if cfg.connected else None, whole if cfg.store else None)
