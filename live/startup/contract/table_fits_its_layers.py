"""A worker makes one block table for a group, and each layer of the group makes its metadata for a
table of the size that its own spec says. If these differ, rows are read with the wrong stride, or
copied into a buffer of another shape (vllm#50823). It has at least the blocks of a request."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup, cdiv
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """The table of each group is as wide as its layers expect, and wide enough."""
    for index, worker in enumerate(start.workers):
        for number, group in enumerate(worker.groups):
            if group.entries is None or not group.layers:
                continue
            made = reason(
                "makes",
                "worker {worker} makes a table of {entries} blocks for a request of group {group}",
                worker=index,
                entries=group.entries,
                group=number,
            )
            if {*group.of_layers} != {group.entries}:
                expected = ", ".join(sorted(map(str, group.of_layers)))
                yield because(
                    made,
                    reason("expect", "its layers expect {expected}", expected=expected),
                )
            needed = cdiv(start.max_model_len, group.block * start.plan.shards)
            if group.kind != "mamba" and group.entries < needed:
                yield because(
                    made, reason("needs", "the longest request has {blocks}", blocks=needed)
                )


RULE = EngineRule(
    id="table_fits_its_layers",
    name="the block table of a group is as wide as each of its layers expects",
    origin="KVCacheSpec.max_num_blocks_per_req; vllm#50823",
    severity=Severity.CRASH,
    judge=judge,
)
