"""vllm#43733: the lookahead slots of the drafter were left out in the first step of a request, so
that D takes as many blocks as P. But a request without a load drafts in its first step, too."""

from kvproof.model import config
from kvproof.model.faults.fault import Fault
from kvproof.model.group_needs import grown
from kvproof.model.state import Table


def only_later(
    cfg: config.EngineConfig,
    group: config.Group,
    table: Table,
    end: int,
    ahead: int,
    *,
    fresh: bool = False,
) -> int:
    """The growth of an admission, without the lookahead slots."""
    return grown(cfg, group, table, end, 0 if fresh else ahead, fresh=fresh)


FAULT = Fault(
    name="first_step_reserves_no_lookahead",
    origin="vllm#43733",
    in_vllm="Scheduler.schedule",
    mistake="an admission allocates no blocks for the lookahead slots of the drafter",
    replaces={"group_needs:grown": only_later},
    breaks=("writer_is_alone",),
    cluster="drafts",
    trace_events=2,
)
