"""vllm#49206: the loop over the running requests keeps its position when it preempts a request
that it has already passed and not scheduled. The next running request moves to that position, and
the loop does not look at it."""

from collections.abc import Sequence

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.greedy import Greedy


def at_its_position(work: Greedy, running: Sequence[str]) -> bool:
    """The loop moves one request further for each preempted request that it has passed and not
    scheduled."""
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


FAULT = Fault(
    name="preemption_skips_the_next",
    origin="vllm#49206",
    in_vllm="Scheduler.schedule",
    mistake="after the preemption of an earlier request, the loop skips the next running request",
    replaces={"reference.scheduling.greedy:serve_running": at_its_position},
    breaks=("room_is_used",),
    cluster="priority-async",
    trace_events=7,
)
