"""What disturbs an engine: aborts, stray reports, evictions from outside, resets of the cache."""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.events import Abort, Event, Evict, ResetPrefixCache, ResetRunning, StrayReport
from kvproof.model.state import ABORTED, LOADING, RUNNING, SENDING, Engine, State


def stimuli(cluster: config.Cluster, state: State) -> Iterator[Event]:
    """The disturbances that are possible now."""
    for engine in state.engines:
        if cluster.aborts:
            for request in engine.requests:
                if request.status not in (SENDING, ABORTED):
                    yield Abort(engine.name, request.id)
        if cluster.stray:
            for job in cluster.jobs:
                if reported_before(state, engine, job.name):
                    yield StrayReport(engine.name, job.name)
        if cluster.evictions:
            for block in engine.free:
                if engine.blocks[block].key is not None:
                    yield Evict(engine.name, block)
        if cluster.resets_any_time:
            yield from resets(cluster, engine)
        elif cluster.resets and engine.cached and not engine.requests and not engine.deferred:
            yield ResetPrefixCache(engine.name)


def reported_before(state: State, engine: Engine, name: str) -> bool:
    """Whether the end of a request's transfer on this engine was already reported, or the request
    was removed, so that another report would be a stray report."""
    request = engine.find(name)
    if request is None:
        return (engine.name, name) in state.ended
    return bool(request.external) and request.status not in (LOADING, ABORTED, SENDING)


def resets(cluster: config.Cluster, engine: Engine) -> Iterator[ResetPrefixCache | ResetRunning]:
    """The resets that are possible now."""
    if engine.cached:
        yield ResetPrefixCache(engine.name)
    if engine.running and only_runners_hold(cluster.engine(engine.name), engine):
        yield ResetRunning(engine.name)


def only_runners_hold(cfg: config.EngineConfig, engine: Engine) -> bool:
    """Whether all blocks are freed immediately when all running requests are preempted."""
    waits = cfg.receives and any(engine.flights(name) for name in engine.running)
    holders = (r.status for r in engine.requests if r.tables)
    return not waits and not engine.deferred and all(status == RUNNING for status in holders)
