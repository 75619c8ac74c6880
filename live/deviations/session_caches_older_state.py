"""The last step of an answer ends past a boundary of a Mamba group, with drafts that are rejected
or dropped. Its state is then in the block after that of the computed tokens. The next part of the
session runs past the end of that block, which stays in the table, and is cached as if the state at
its end were there."""

from kvproof.live.deviations.facts import after, holders, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import NULL, Engine, Request
from kvproof.model.step import Step


def _left_behind(engine: Engine, session: Request, group: int, size: int) -> bool:
    """Whether a block of a session's table has a state of its prompt before the end of the block,
    and the session has computed more."""
    for block, end in zip(
        session.tables[group], range(size, session.computed + 1, size), strict=False
    ):
        held = engine.memory[block] if block != NULL else None
        state = held.slots[0] if held and held.group == group else ""
        if state and len(state) < end and session.tokens.startswith(state):
            return True
    return False


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Beside drafts, a session has such a block."""
    cfg = cluster.engine(about.engine)
    if not cluster.sessions or not cfg.drafts or about.group is None:
        return False
    known, size = request(step, about), cfg.groups[about.group].block_size
    return any(
        _left_behind(after(step, about), each, about.group, size)
        for each in (holders(step, about) if known is None else [known])
        if cluster.job(each.id).parts and each.tables
    )


DEVIATION = Deviation(
    name="session_caches_older_state",
    in_vllm="MambaManager.allocate_new_blocks",
    says="a part of a session runs past a block that has an earlier state, and it is cached",
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
        | seen("no_more_is_held_than_is_read", "Schedule", on=("mamba",))
    ),
    at_work=at_work,
)
