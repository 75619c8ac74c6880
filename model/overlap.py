"""The output of a step arrives on an engine whose steps overlap (see `in_flight`).

Source: `Scheduler.update_from_output` with `AsyncScheduler._update_request_with_output`.
"""

from kvproof.model import config, connector, coordinator, history, in_flight
from kvproof.model.errors import NotAllowed
from kvproof.model.rules import Rules
from kvproof.model.state import COUNTS, LATE, VOID, Engine, Flight, State


def complete(cluster: config.Cluster, rules: Rules, state: State, name: str) -> State:
    """The output of the oldest step in flight arrives. Each sampled token takes the place of its
    placeholder; full blocks of known tokens are cached; a request may end. The output of a request
    that has ended is thrown away; the token of one that was preempted is kept, and touches no
    placeholder, for the preemption has taken them (vllm#48245)."""
    cfg, engine = cluster.engine(name), state.engine(name)
    if not engine.steps:
        raise NotAllowed(f"engine {name} has no step in flight")
    engine, step = in_flight.arrived(engine, rules)
    state = state.putting(engine)
    for flight in step:
        if flight.fate != VOID:
            state = _taken(cfg, rules, state, flight)
    return state


def _taken(cfg: config.Engine, rules: Rules, state: State, flight: Flight) -> State:
    engine = _without_placeholder(state.engine(cfg.name), flight, rules)
    request = engine.request(flight.request)
    if not flight.samples:
        return state.putting(engine)
    if flight.fate == COUNTS:
        engine = history.record_served(engine, request)
    request = history.sampled(request)
    engine = engine.having(request)
    if flight.fate == COUNTS:
        settled = len(request.tokens) - 1
        engine, request = coordinator.cache(cfg, engine, request, settled, rules)
    state = state.putting(engine)
    if len(request.output) >= request.max_tokens:
        return connector.finish(cfg, state, request, rules)
    return state


def _without_placeholder(engine: Engine, flight: Flight, rules: Rules) -> Engine:
    if flight.fate == LATE and not rules.late_output_takes_placeholder():
        return engine
    left = engine.placeholders(flight.request) - int(rules.placeholders_taken(flight.samples))
    return in_flight.with_placeholders(engine, flight.request, left)
