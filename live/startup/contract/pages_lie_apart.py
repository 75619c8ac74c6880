"""A block belongs to one group at a time. So the pages of two groups may share bytes only where
both are pages of the same block, and the pages of one group may share none. All lie in their
buffer."""

from collections.abc import Iterator
from itertools import combinations

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.facts.startup import Pages, StartedWorker, Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The pages of a worker share no bytes that they must not share."""
    for index, worker in enumerate(start.workers):
        mine = [pages for pages in worker.pages if pages.layer in worker.layers]
        for pages in mine:
            last = pages.start + (worker.num_blocks - 1) * pages.stride + pages.size
            if last > worker.buffers[pages.buffer]:
                yield because(
                    _place(index, pages),
                    reason(
                        "ends",
                        "the last ends at {last} of {bytes} bytes",
                        last=last,
                        bytes=worker.buffers[pages.buffer],
                    ),
                )
        home = {name: at for at, group in enumerate(worker.groups) for name in group.layers}
        for one, other in combinations(mine, 2):
            alone = home.get(one.layer) == home.get(other.layer)
            if one.buffer == other.buffer and (met := _meet(worker, one, other, alone)):
                yield because(
                    _place(index, one),
                    _place(index, other),
                    reason(
                        "meet",
                        "block {one} of the first shares bytes with block {other} of the second",
                        one=met[0],
                        other=met[1],
                    ),
                )


def _meet(worker: StartedWorker, one: Pages, other: Pages, alone: bool) -> tuple[int, int] | None:
    """The blocks whose pages share bytes, and must not."""
    for block in range(worker.num_blocks):
        begin = one.start + block * one.stride
        first = max((begin - other.start - other.size) // other.stride + 1, 0)
        for theirs in range(first, worker.num_blocks):
            if other.start + theirs * other.stride >= begin + one.size:
                break
            if alone or theirs != block:
                return block, theirs
    return None


def _place(worker: int, pages: Pages) -> Reason:
    return reason(
        "place",
        "worker {worker}: the pages of {layer} begin at byte {start}, {stride} apart, {size} long",
        worker=worker,
        layer=pages.layer,
        start=pages.start,
        stride=pages.stride,
        size=pages.size,
    )


RULE = EngineRule(
    id="pages_lie_apart",
    name="two layers share bytes only as pages of the same block in different groups",
    origin="KVCacheTensor",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
