"""What the reference does, and which conditions it asks for, where a fault may do or ask otherwise:
around hits, loads, sessions and the order of service. Those of the block pool are in `pool`.

No module here needs `rules` to run: `rules` takes its defaults from them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvproof.model import config
from kvproof.model.events import Lists
from kvproof.model.state import LATE, PAUSED, Flight, Request

if TYPE_CHECKING:
    from kvproof.model.reference.blocks.coordinator import Hit
    from kvproof.model.reference.blocks.growth import Grown
    from kvproof.model.reference.scheduling.greedy import Greedy
    from kvproof.model.reference.scheduling.scheduler import Scheduling


def connector_brings_states(cfg: config.Engine) -> bool:
    """Whether external tokens come with the states and windows at their end, so that a local hit
    before them must hold in full attention only. A store is asked about what all groups hold."""
    return not cfg.store


def begin_load(work: "Scheduling", request: Request, hit: "Hit", recorded: Lists) -> "Grown | None":
    """A load computes nothing in its step: the align split has nothing to cut (vllm#42554)."""
    return work.load(request, hit, recorded)


def caches_prompt_end(cfg: config.Engine, group: config.Group) -> bool:
    """Whether a group caches a prompt's last prefix that has a hash also where it ends inside a
    block: only where a hit can end there."""
    return cfg.partial_block_hits and group.kind != "window"


def tokens_loaded_before_chunk(loaded: int, end: int) -> int:
    """Tokens whose state a load brings in a step that computes on to `end`; 0 where it computes
    nothing."""
    return loaded if loaded < end else 0


def awaits_output(flights: Sequence[Flight]) -> bool:
    """Whether a token of a request that was sampled before its preemption is still to come. Run
    again before, it would sample the same position twice (vllm#48245)."""
    return any(flight.fate == LATE for flight in flights)


def wait_for_user(request: Request) -> Request:
    """A session whose part is answered, waiting for the next one."""
    computed = min(request.computed, len(request.tokens) - 1)
    return request._replace(status=PAUSED, computed=computed, drafts=0)


def serve_waiting(work: "Greedy", waiting: Sequence[Request]) -> None:
    """Serve those that wait, in this order, while they fit. Where nobody runs and nobody fits,
    sessions that wait give their blocks to the first."""
    for request in waiting:
        if not work.serve(request):
            break
    if waiting and not work.chose and not work.engine.running:
        work.reclaim(waiting[0].id)
