"""A `BlockStored` names hashes and carries tokens; whoever computes hashes of its own cuts the
tokens into blocks and takes the first for the first hash. #44451: where blocks of a Mamba group are
skipped, the tokens are those of all blocks and the hashes those of some, so that a hash is taken
for tokens it does not stand for. A parent that was never told (#58119) leaves the chain open.

Where hashes cover the token after a block, that is told too, block by block (vllm#50438).

A prefix that ends inside a block is told by the tokens since the last one that has a hash."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.kv_events import Removed, Stored
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The tokens of a report, cut into blocks after its parent, are the prefixes it names; and the
    parent, where it is not the start, is known to whoever heard all reports before."""
    if not step.effects.reports:
        return
    # Blocks enter and leave a cache by an event of their engine, never by one of a transfer.
    engine = cluster.engine(getattr(step.event, "engine", cluster.decode.name))
    known = set(step.before.engine(engine.name).ghost.mirror or ())
    for report in step.effects.reports:
        if isinstance(report, Stored):
            ahead = engine.hash_lookahead_tokens
            size = engine.groups[report.group].block_size
            if any((len(prefix) - ahead) % size for prefix in report.prefixes):
                size = engine.hash_unit
            start = max(len(report.parent) - ahead, 0)
            whole = report.parent[:start] + report.tokens
            after = report.lookahead or ("",) * len(report.prefixes)
            ends = range(start + size, len(whole) + 1, size)
            if report.prefixes != tuple(map(str.__add__, (whole[:end] for end in ends), after)):
                yield because(
                    f"{engine.name} tells of {list(report.prefixes)} stored in group "
                    f"{report.group}, in blocks of {size} tokens",
                    f"the tokens told are {report.tokens!r} after {report.parent!r}"
                    + (f", and {list(report.lookahead)} after each block" if ahead else ""),
                    engine=engine.name,
                    group=report.group,
                )
            if report.parent and report.parent not in {prefix for _, prefix in known}:
                yield because(
                    f"{engine.name} tells of blocks stored after {report.parent!r}",
                    "that prefix is not told to be cached",
                    engine=engine.name,
                    group=report.group,
                )
        if isinstance(report, Stored):
            known.update((report.group, prefix) for prefix in report.prefixes)
        elif isinstance(report, Removed):
            known.discard((report.group, report.prefix))
        else:
            known.clear()


INVARIANT = Invariant(
    id="events_carry_their_tokens",
    name="a KV event carries the tokens of the blocks it names, after a parent that is known",
    origin="vllm#44451",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    killed_by="report_spans_skipped_blocks",
)
