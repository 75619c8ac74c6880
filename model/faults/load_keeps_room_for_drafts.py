"""vLLM 0.32.0 on D with a drafter: a load is admitted only if, in each attention group, blocks for
a whole step with drafts are free in addition. The blocks of the load already have room for some of
these tokens. A prompt that fits waits for ever, and so do all requests behind it."""

from kvproof.model.arithmetic import counts
from kvproof.model.errors import NoRoom
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.greedy import Greedy
from kvproof.model.state import Engine

leaves_room = Greedy.leaves_room


def beside_a_step_with_drafts(work: Greedy, before: Engine, name: str) -> bool:
    """Count the blocks of a whole step with drafts as well: a sampled token, its drafts and the
    lookahead slots of the drafter."""
    if not work.cfg.drafts or work.engine.dead:
        return leaves_room(work, before, name)
    slots = 1 + work.cfg.drafts + work.cfg.lookahead
    promised = sum(work.still_needed(r, slots) for r in before.requests if work.has_begun(r))
    rest = work.still_needed(work.engine.request(name), work.cfg.lookahead)
    sizes = (group.block_size for group in work.cfg.groups if group.attention)
    kept = sum(int(counts.blocks_for_tokens(slots, size)) for size in sizes)
    needed, free = promised + max(rest, kept), len(work.engine.free)
    if needed > free:
        taken = len(before.free) - free
        text = f"{name} would take blocks that other requests need to finish"
        raise NoRoom(text, needed + taken, free + taken)
    return True


FAULT = Fault(
    name="load_keeps_room_for_drafts",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler.schedule",
    mistake=(
        "a load waits for the blocks of a whole step with drafts, although its own blocks have room"
    ),
    replaces={"reference.scheduling.greedy:Greedy.leaves_room": beside_a_step_with_drafts},
    breaks=("every_request_can_finish",),
    cluster="pd-drafts-tight",
    trace_events=5,
    concerns=lambda cluster: cluster.disaggregated and cluster.decode.drafts > 0,
)
