"""Equal counts are not enough: lists trimmed by count from the wrong end pair the first blocks of P
with the last of D (#50558, #48633)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import giver, taker
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.state import Table
from kvproof.model.step import Step


def offset(table: Table, block: int, ratio: int, width: int) -> int | None:
    """Token offset of a kernel block in its request, None where it is not of it."""
    logical, part = divmod(block, ratio)
    return (table.index(logical) * ratio + part) * width if logical in table else None


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each pair of attention blocks is at the same token offset on both sides."""
    for transfer in step.after.transfers:
        if transfer == step.before.transfer(transfer.request) or not transfer.pairs:
            continue
        p, sent = giver(cluster, transfer.request)
        d, taken = taker(cluster, transfer.request)
        ours = step.after.engine(d.name).find(taken)
        theirs = step.after.engine(p.name).find(sent)
        if ours is None or theirs is None:
            continue
        for group, (local, remote) in enumerate(transfer.pairs):
            if not d.groups[group].attention:
                continue
            width = d.kernel_tokens(group)
            for here, there in zip(local, remote, strict=False):
                to = offset(ours.tables[group], here, d.physical_per_logical, width)
                origin = offset(theirs.tables[group], there, p.physical_per_logical, width)
                if to != origin:
                    yield because(
                        f"{d.name}'s block {here} of {taken} is for tokens from {to} on "
                        f"in group {group}",
                        f"it is filled from {p.name}'s block {there}, whose tokens start at "
                        f"{origin}",
                        engine=d.name,
                        request=taken,
                        group=group,
                        block=here,
                    )


INVARIANT = Invariant(
    id="paired_offsets_are_equal",
    name="local and remote blocks are paired at equal token offsets in every attention group",
    origin="vllm#50558",
    severity=Severity.WRONG_TOKENS,
    check=check,
    killed_by="front_trim",
)
