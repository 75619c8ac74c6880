"""The order of requests, preemption, resets, and steps that overlap."""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.counting_abstraction.table import TableCounts, TableSizes
from kvproof.model.counting_abstraction.table_system import preempted as preempted_in_counts
from kvproof.model.faults.fault import fault
from kvproof.model.reference.scheduling.greedy import Greedy, serve_running
from kvproof.model.reference.scheduling.preemption import preempted
from kvproof.model.reference.scheduling.step_output import without_placeholder
from kvproof.model.state import PREEMPTED, RUNNING, Engine, Flight, Request


@fault(
    "the job with the highest priority number is admitted first and preempted last",
    origin="vllm#19057",
    replaces="reference.scheduling.scheduler_step:rank",
    breaks="priority_is_kept",
    cluster="priority",
)
def priority_is_reversed(priority: int, arrival: int) -> tuple[int, ...]:
    """The request with the lowest priority number is admitted first (vllm#19057). A scheduler
    that takes a higher number for more urgent admits and preempts the wrong requests."""
    return (-priority, arrival)


@fault(
    "the loop over running requests skips one request",
    origin="vllm#49206",
    in_vllm="Scheduler.schedule",
    replaces="reference.scheduling.greedy:serve_running",
    breaks="room_is_used",
    cluster="async",
)
def runner_is_passed_over(work: Greedy, running: Sequence[str]) -> bool:
    """Before vllm#49206, the preemption of an earlier request made the loop over running
    requests skip the next request. Here the second running request is never scheduled together
    with the first."""
    return serve_running(work, (*running[:1], *running[2:]))


@fault(
    "a request that does not fit into the whole pool is queued and blocks the requests behind it",
    origin="vllm#39734",
    in_vllm="Scheduler.add_request",
    replaces="capacity:can_hold",
    breaks=("step_makes_progress", "every_request_can_finish"),
    cluster="oversized",
)
def impossible_fit_waits(_engine: config.EngineConfig, _request: Request) -> bool:
    """vLLM 0.32.0's scheduler (the open part of vllm#39734, and vllm#52520): a request that
    needs more blocks than the pool has is queued like any other request. It can never run, and
    all requests behind it wait."""
    return True


@fault(
    "an admission beside running requests takes the blocks of the watermark",
    origin="vllm#44594",
    in_vllm="KVCacheManager.allocate_slots",
    replaces="reference.scheduling.greedy:kept_at_admission",
    breaks="watermark_is_kept",
    cluster="watermark",
)
def watermark_is_ignored(_watermark: int, _others_run: bool) -> int:
    """The watermark keeps blocks free for running requests (vllm#44594). A scheduler that
    ignores it where it admits a request lets the requests preempt each other."""
    return 0


@fault(
    "after the preemption of an earlier request, the loop skips the next running request",
    origin="vllm#49206",
    in_vllm="Scheduler.schedule",
    replaces="reference.scheduling.greedy:serve_running",
    breaks="room_is_used",
    cluster="priority-async",
)
def preemption_skips_the_next(work: Greedy, running: Sequence[str]) -> bool:
    """vllm#49206: the loop over the running requests keeps its position when it preempts a
    request that it has already passed and not scheduled. The next running request moves to that
    position, and the loop does not look at it. Here the loop goes one request further for each
    preempted request that it has passed and not scheduled."""
    undisturbed, visited = True, list[str]()
    turn = tuple(running)
    while turn:
        name, turn = turn[0], turn[1:]
        if name not in work.engine.running or not work.budget or work.engine.dead:
            continue
        idle = set(visited) & set(work.engine.running) - set(dict(work.scheduled))
        undisturbed &= work.run_on(name)
        if name not in work.engine.running:
            break
        visited.append(name)
        turn = turn[len(idle - set(work.engine.running)) :]
    return undisturbed


def with_its_counter_in_counts(sizes: TableSizes, t: TableCounts) -> TableCounts:
    """The counter stays as it was before the preemption."""
    return preempted_in_counts(sizes, t)._replace(num_cached_blocks=t.num_cached_blocks)


@fault(
    "a preempted request keeps its number of cached blocks",
    origin="vllm#36752",
    in_vllm="Scheduler._preempt_request",
    replaces="reference.scheduling.preemption:preempted",
    also_replaces={"counting_abstraction.table_system:preempted": with_its_counter_in_counts},
    breaks="counter_counts_only_cached",
    cluster="pd-preempting",
)
def preemption_keeps_counter(request: Request) -> Request:
    """A preemption reset the computed tokens of a request but not a second counter (vllm#36752,
    there a counter of its statistics). Here the second counter is `num_cached_blocks`: the
    preempted request has no blocks, and its next blocks are never cached."""
    counted = request.num_cached_blocks
    return preempted(request)._replace(num_cached_blocks=counted if any(counted) else ())


@fault(
    "the worker keeps the place of a preempted request",
    origin="vllm#46974",
    in_vllm="Scheduler._preempt_request",
    replaces="reference.scheduling.scheduler:keeps_its_place",
    breaks="worker_forgets_who_left",
    cluster="window",
)
def preemption_is_not_reported(request: Request) -> bool:
    """Before vllm#46974 the worker had no report of requests that a reset had preempted. Here no
    preemption is reported to it."""
    return request.status in (RUNNING, PREEMPTED)


@fault(
    "blocks of a request that is removed from a step stay cached, although they were never filled",
    origin="vllm#57580",
    in_vllm="Scheduler._preempt_request",
    replaces="reference.blocks.pool:forget_uncomputed",
    breaks="cached_block_holds_its_key",
    cluster="priority-hybrid",
)
def uncomputed_stays_cached(_begun: Engine, engine: Engine, _request: Request) -> Engine:
    """vllm#57580: with priority scheduling, a request may be preempted in the step that was to
    compute its tokens. Its blocks were cached when they were allocated, and stay cached. A
    request that hits them reads KV that was never written."""
    return engine


@fault(
    "a reset is carried out while blocks are in use, and leaves these blocks in the cache",
    origin="vllm#57727",
    in_vllm="BlockPool.reset_prefix_cache",
    replaces="reference.blocks.pool:is_idle",
    breaks="reset_is_whole",
    cluster="resetting",
)
def reset_under_load(_engine: Engine) -> bool:
    """A reset after a change of weights must leave no cache entry of the old weights (vllm#57727
    is about a cache tier that was not reset). Here a reset removes only the entries of free
    blocks and reports success. Later prompts still hit entries of the old weights."""
    return True


@fault(
    "the output of a chunk that samples no token removes a placeholder",
    origin="vllm#57562",
    in_vllm="AsyncScheduler._update_request_with_output",
    replaces="reference.scheduling.step_output:without_placeholder",
    breaks="placeholders_are_samples_in_flight",
    cluster="async",
)
def chunk_takes_placeholder(engine: Engine, flight: Flight) -> Engine:
    """vllm#57562: a step computed a part of a prompt and sampled no token. Its output still
    removed a placeholder, which the step had not reserved."""
    return without_placeholder(engine, flight._replace(samples=True))


@fault(
    "output from before a preemption removes a placeholder that the preemption already removed",
    origin="vllm#48245",
    in_vllm="AsyncScheduler._update_request_with_output",
    replaces="reference.in_flight:placeholders_due",
    breaks="placeholders_are_samples_in_flight",
    cluster="async-preempting",
)
def late_output_takes_placeholder(reserved: int, _late: bool) -> int:
    """vllm#48245: a preemption removed the placeholders of a request. The pending output of the
    request removed them a second time, and the count became negative."""
    return reserved


@fault(
    "a preempted request runs again before its pending token has arrived",
    origin="vllm#48245",
    in_vllm="Scheduler.schedule",
    replaces="reference.in_flight:awaits_output",
    breaks="placeholders_are_samples_in_flight",
    cluster="hybrid-async",
)
def resumes_before_late_output(_flights: Sequence[Flight]) -> bool:
    """vllm#48245 (review): a preempted request must not run again while a token that was sampled
    before the preemption is pending. Otherwise it samples the same position twice, and both
    tokens are kept."""
    return False
