"""Equal list lengths are not enough. When vLLM trimmed the lists at the wrong end, the first blocks
of P were paired with the last blocks of D (vllm#50558, vllm#48633). D then read correct KV at wrong
token positions."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import giver, kernel_block, taker
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Table
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def offset(table: Table, block: int, ratio: int, width: int) -> int | None:
    """Token offset of a kernel block in its request; None if the block is not in the table."""
    logical, part = divmod(block, ratio)
    return (table.index(logical) * ratio + part) * width if logical in table else None


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Both blocks of each attention pair have the same token offset."""
    for name in step.changed_transfers:
        earlier, transfer = step.before.transfer(name), step.after.transfer(name)
        pairs = () if transfer is None else transfer.pairs
        if not pairs or (earlier is not None and earlier.pairs == pairs):
            continue  # judged when the blocks were paired, whatever becomes of the transfer
        source, sent = giver(cluster, name)
        sink, taken = taker(cluster, name)
        ours = step.after.engine(sink.name).find(taken)
        theirs = step.after.engine(source.name).find(sent)
        if ours is None or theirs is None:
            continue
        for group, (local, remote) in enumerate(pairs):
            if not sink.groups[group].attention:
                continue
            width = sink.kernel_tokens(group)
            for here, there in zip(local, remote, strict=False):
                to = offset(ours.tables[group], here, sink.physical_per_logical, width)
                origin = offset(theirs.tables[group], there, source.physical_per_logical, width)
                if to != origin:
                    yield because(
                        reason(
                            "holds_tokens_from",
                            "{here} holds the tokens of {request} "
                            "from token {to} on in group {group}",
                            here=kernel_block(sink, here),
                            to=to,
                        ),
                        reason(
                            "is_read_from",
                            "it is read from {there}, whose tokens start at {origin}",
                            there=kernel_block(source, there),
                            origin=origin,
                        ),
                        engine=sink.name,
                        request=taken,
                        group=group,
                        block=here,
                    )


INVARIANT = Invariant(
    id="paired_offsets_are_equal",
    name=(
        "each local block is paired with the remote block of equal token offset in every "
        "attention group"
    ),
    origin="vllm#50558",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.PAIRED_BLOCKS,),
    subjects=(Subject.READ, Subject.PARAMS),
    killed_by="front_trim",
)
