"""Resets of the prefix cache while requests are under way.

A reset needs a pool in which no block is in use; otherwise it is refused, and changes nothing. Or
all that runs is preempted first. Then nothing that was computed before may be read again: what
steps in flight still bring is thrown away, and requests start over.

Source: `Scheduler.reset_prefix_cache` of vLLM V1. Left open: `reset_running_requests` where others
than running requests hold blocks (vLLM preempts, and raises), and `reset_connector`.
"""

from collections.abc import Iterator

from kvproof.model import config
from kvproof.model.errors import NotAllowed
from kvproof.model.events import ResetPrefixCache, ResetRunning
from kvproof.model.kv_events import Cleared
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.blocks.allocation import without_progress
from kvproof.model.reference.blocks.kv_event_queue import reporting
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.rules import Rules
from kvproof.model.state import PREEMPTED, RUNNING, VOID, Engine, State


def possible(cluster: config.Cluster, engine: Engine) -> Iterator[ResetPrefixCache | ResetRunning]:
    """The resets that may come at any time."""
    if engine.cached:
        yield ResetPrefixCache(engine.name)
    if engine.running and only_runners_hold(cluster.engine(engine.name), engine):
        yield ResetRunning(engine.name)


def only_runners_hold(cfg: config.Engine, engine: Engine) -> bool:
    """Whether all blocks come free at once when nobody runs any more."""
    waits = any(in_flight.must_wait(cfg, engine, name) for name in engine.running)
    holders = (r.status for r in engine.requests if r.tables)
    return not waits and not engine.deferred and all(status == RUNNING for status in holders)


def emptied(engine: Engine, rules: Rules) -> Engine:
    """The engine without cache entries, of free blocks at least."""
    reports = engine.reports
    for block in engine.free:
        engine = pool.unregister(engine, block, rules)
    return reporting(engine._replace(reports=reports), Cleared())


def of_idle_pool(
    cluster: config.Cluster, rules: Rules, state: State, event: ResetPrefixCache
) -> State:
    """A reset that is refused where blocks are in use."""
    engine = state.engine(event.engine)
    if not rules.pool_is_idle(engine):
        if not cluster.resets_any_time:
            raise NotAllowed(f"the cache of {event.engine} is reset while blocks are in use")
        return state
    return state.with_engine(emptied(engine, rules))


def with_preemption(
    cluster: config.Cluster, rules: Rules, state: State, event: ResetRunning
) -> State:
    """All that runs is preempted, the last first, and the cache is emptied."""
    engine = state.engine(event.engine)
    if not only_runners_hold(cluster.engine(event.engine), engine):
        raise NotAllowed(f"the cache of {event.engine} is reset and not only runners hold blocks")
    for name in reversed(engine.running):
        request = engine.request(name)
        engine = in_flight.invalidated(engine, name, VOID)
        engine = pool.release_all(engine, request, rules)
        request = without_progress(request)._replace(status=PREEMPTED, preemptions=1)
        engine = engine.with_request(request)
    return state.with_engine(emptied(engine._replace(running=()), rules))
