"""One scheduler gives out block ids for all workers. A worker with fewer blocks would be asked for
blocks that it does not have; with other groups, it would read another table."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import StartedWorker, Startup
from kvproof.model.plans.startup import KEEP_ALL
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """Every worker has the blocks and the groups of the scheduler."""
    for index, worker in enumerate(start.workers):
        if worker.num_blocks != start.num_blocks:
            yield because(
                reason("gives", "the scheduler gives out {blocks} blocks", blocks=start.num_blocks),
                reason(
                    "has",
                    "worker {worker} has {blocks}",
                    worker=index,
                    blocks=worker.num_blocks,
                ),
            )
        elif _shapes(worker) != _shapes(start.workers[0]):
            yield because(
                reason("one", "worker 0 has groups {groups}", groups=_shapes(start.workers[0])),
                reason(
                    "other", "worker {worker} has {groups}", worker=index, groups=_shapes(worker)
                ),
            )


def _shapes(worker: StartedWorker) -> str:
    """What the tables of the groups keep. A worker may have none of the layers of a group. MLA,
    hidden states and attention with sinks keep what full attention keeps."""
    kinds = [("full" if g.kind in KEEP_ALL else g.kind, g) for g in worker.groups]
    return ", ".join(f"{kind} in blocks of {g.block}" for kind, g in kinds)


RULE = EngineRule(
    id="blocks_are_the_same_everywhere",
    name="all workers have as many blocks as the scheduler gives out, in the same groups",
    origin="generate_scheduler_kv_cache_config",
    severity=Severity.CRASH,
    judge=judge,
)
