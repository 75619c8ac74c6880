"""The null block is a placeholder in block tables and holds no tokens. vllm#42547 registered it
under the hashes of loaded tokens, so that prefix lookups would succeed. Requests that hit these
hashes then read the null block as if it held their prefix."""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import first_token_read
from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import giver, logical, taker
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, PREEMPTED, RUNNING, WAITING, Engine
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The null block is never cached, free, transferred or read."""
    for _, engine in step.touched:
        for key, blocks in engine.cached:
            if NULL in blocks:
                yield because(
                    reason(
                        "is_cached", "prefix {prefix:quoted} of group {group} is cached on {engine}"
                    ),
                    reason("is_null", "its block is the null block, which holds no tokens"),
                    engine=engine.name,
                    group=key[0],
                    prefix=key[1],
                )
        if NULL in engine.free:
            yield because(
                reason("never_allocated", "the null block of {engine} can never be allocated"),
                reason("is_free", "it is in the free queue"),
                engine=engine.name,
            )
    for name in step.changed_transfers:
        transfer = step.after.transfer(name)
        for group, (local, remote) in enumerate(transfer.pairs if transfer else ()):
            parties = taker(cluster, name), giver(cluster, name)
            sides = zip(parties, (local, remote), strict=True)
            null = [p.engine.name for p, ids in sides if NULL in logical(p.engine, group, ids)]
            if null:
                sink, source = (party.engine.name for party in parties)
                yield because(
                    reason(
                        "transfers_blocks",
                        "blocks {local} of {engine} are filled from blocks {remote} of {source} "
                        "for {request} in group {group}",
                        local=local,
                        remote=remote,
                        source=source,
                    ),
                    reason(
                        "one_is_null",
                        "block 0 of {engines:all} is the null block, which holds no tokens",
                        engines=null,
                    ),
                    engine=sink,
                    request=name,
                    group=group,
                )
    for read in step.effects.reads:
        if read.block == NULL:
            yield because(
                reason(
                    "reads_prefix",
                    "{request} reads prefix {expected:quoted} in group {group}",
                    expected=read.expected,
                ),
                reason("table_has_null", "its block table on {engine} has the null block there"),
                engine=read.engine,
                request=read.request,
                group=read.group,
            )


def margin(cluster: Cluster, engine: Engine) -> int | None:
    """Smallest number of tokens between the last leading null entry of a block table and the first
    token that the next step reads."""
    found = []
    for request in engine.requests:
        if request.status not in (WAITING, RUNNING, PREEMPTED):
            continue
        groups = cluster.engine(engine.name).groups
        for group, table in zip(groups, request.tables, strict=False):
            null = next((i for i, block in enumerate(table) if block != NULL), len(table))
            if null:
                needed = first_token_read(group, request.computed)
                found.append(needed - null * group.block_size)
    return min(found, default=None)


INVARIANT = Invariant(
    id="null_block_is_nobody",
    name="the null block is never cached, free, transferred or read",
    origin="vllm#42547",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.NULL_BLOCK,),
    subjects=(Subject.REAL_BLOCKS, Subject.BLOCKS),
    margin=margin,
    killed_by="null_blocks_registered",
)
