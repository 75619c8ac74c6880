"""Resets of the prefix cache under load.

A reset needs a pool in which no block is in use; otherwise it is refused and changes nothing.
Another kind of reset preempts all running requests first. After that, no earlier computed KV may be
read: outputs of steps in flight are discarded, and requests start over.

Source: `Scheduler.reset_prefix_cache` of vLLM V1. Not modelled: `reset_running_requests` where
other than running requests hold blocks (vLLM preempts, then raises), and `reset_connector`.
"""

from kvproof.model import config
from kvproof.model.environment import disturbances
from kvproof.model.errors import NotAllowed
from kvproof.model.events import ResetPrefixCache, ResetRunning
from kvproof.model.kv_events import Cleared
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.kv_event_queue import reporting
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.scheduling.preemption import preempted
from kvproof.model.state import VOID, Engine, State


def emptied(engine: Engine) -> Engine:
    """The engine without the cache entries of free blocks."""
    reports = engine.reports
    for block in engine.free:
        engine = pool.unregister(engine, block)
    return reporting(engine._replace(reports=reports), Cleared())


def of_idle_pool(cluster: config.Cluster, state: State, event: ResetPrefixCache) -> State:
    """Reset the cache. Where blocks are in use, the reset is refused and changes nothing."""
    engine = state.engine(event.engine)
    if not pool.is_idle(engine):
        if not cluster.resets_any_time:
            raise NotAllowed(f"the cache of {event.engine} is reset while blocks are in use")
        return state
    return state.with_engine(emptied(engine))


def with_preemption(cluster: config.Cluster, state: State, event: ResetRunning) -> State:
    """Preempt all running requests, the last one first, and empty the cache."""
    engine = state.engine(event.engine)
    if not disturbances.only_runners_hold(cluster.engine(event.engine), engine):
        raise NotAllowed(
            f"the cache of {event.engine} is reset while other than running requests hold blocks"
        )
    for name in reversed(engine.running):
        request = engine.request(name)
        engine = in_flight.invalidated(engine, name, VOID)
        engine = pool.release_all(engine, request)
        engine = engine.with_request(preempted(request))
    return state.with_engine(emptied(engine._replace(running=())))
