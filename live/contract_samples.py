"""Small real objects of vLLM for attribute lookups: a class does not show the attributes that its
constructor sets. Each object is built once, at its first use, from the smallest engine that has
it."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from kvproof.live.contract.aliases import follow
from kvproof.live.contract.lookup import Missing, last_line
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import AdapterDrift
from kvproof.model.state import SAMPLED, WAITING, Request

GROUP = Group("full", 2)


class Samples:
    """The sample objects of vLLM, by the label that the table has for them."""

    def __init__(self) -> None:
        self.by_label: dict[str, Any] = {}

    def note(self, label: str, thing: Any) -> Any:
        """Keep an object, and return it. Its class also gets the names that the contract uses."""
        self.by_label[label] = follow(label, thing)
        return thing


def _engine() -> Mapping[str, Any]:
    """The objects of an engine that has computed one step of one request."""
    from vllm.v1.outputs import ModelRunnerOutput

    from kvproof.live import build

    cfg = EngineConfig("E", (GROUP,))
    found = Samples()
    scheduler = found.note("Scheduler", build.scheduler(cfg, "fail"))
    request = build.request(cfg, Request("r0", WAITING, "abc", 3, 1), None)
    request = found.note("Request", request)
    scheduler.add_request(request)
    manager = found.note("KVCacheManager", scheduler.kv_cache_manager)
    coordinator = found.note("KVCacheCoordinator", manager.coordinator)
    group = found.note("SingleTypeKVCacheManager", coordinator.single_type_managers[0])
    pool = found.note("BlockPool", manager.block_pool)
    found.note("BlockHashToBlockMap", pool.cached_block_hash_to_block)
    found.note("FreeKVCacheBlockQueue", pool.free_block_queue)
    output = found.note("SchedulerOutput", scheduler.schedule())
    found.note("NewRequestData", output.scheduled_new_reqs[0])
    found.note("CachedRequestData", output.scheduled_cached_reqs)
    (table,) = group.req_to_blocks.values()
    found.note("KVCacheBlock", table[0])
    found.note("KVCacheBlocks", manager.get_blocks(request.request_id))
    answer = ModelRunnerOutput(["r0"], {"r0": 0}, [[ord(SAMPLED)]])
    (answers,) = scheduler.update_from_output(output, answer).values()
    found.note("EngineCoreOutput", found.note("EngineCoreOutputs", answers).outputs[0])
    groups = found.note("KVCacheConfig", build.kv_cache_config(cfg)).kv_cache_groups
    found.note("KVCacheGroupSpec", groups[0])
    return found.by_label


def _events() -> Mapping[str, Any]:
    """The object that publishes the KV events of an engine."""
    from kvproof.live import build

    scheduler = build.scheduler(EngineConfig("E", (GROUP,), kv_events=True), "fail")
    found = Samples()
    found.note("EventPublisher", follow("Scheduler", scheduler).kv_event_publisher)
    return found.by_label


def _connected(pushes: bool, kind: str) -> Mapping[str, Any]:
    from vllm.v1.core.sched.output import SchedulerOutput

    from kvproof.live import build

    scheduler = build.scheduler(EngineConfig("D", (GROUP,), role="decode"), "fail", False, pushes)
    found = Samples()
    connector = found.note(kind, follow("Scheduler", scheduler).connector)
    found.note(f"{kind}Scheduler", connector.connector_scheduler)
    metadata = connector.build_connector_meta(SchedulerOutput.make_empty())
    found.note(f"{kind}Metadata", metadata)
    return found.by_label


_BUILDERS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "EventPublisher": _events,
    "NixlConnector": functools.partial(_connected, False, "NixlConnector"),
    "NixlPushConnector": functools.partial(_connected, True, "NixlPushConnector"),
}
"""What builds the objects whose class has a name that begins so."""


@functools.cache
def _built(builder: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | str:
    """The object that a builder makes, or the reason why it failed. Each builder runs once."""
    try:
        return builder()
    except AdapterDrift as drift:
        return drift.why
    except Exception as error:  # vLLM may raise anything when an engine is built
        return last_line(error)


def labels(kind: type) -> set[str]:
    """The names by which the table refers to objects of this class."""
    built = [_built(builder) for builder in {_engine, *_BUILDERS.values()}]
    things = [thing for each in built if not isinstance(each, str) for thing in each.items()]
    return {label for label, thing in things if isinstance(thing, kind)}


def sample(kind: str) -> Any:
    """A real object of this class. Raises Missing if this vLLM cannot build one."""
    own = (make for begins, make in _BUILDERS.items() if kind.startswith(begins))
    built = _built(next(own, _engine))
    if isinstance(built, str):
        raise Missing(f"no {kind} can be built: {built}")
    return built[kind]
