"""A KV transfer paired blocks from the wrong end, and D's blocks received the KV of other tokens
(vllm#48633). All counters were correct, and the answer was wrong."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import NULL
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Every KV slot that a request attends to holds the KV of the request's own prefix."""
    for read in step.effects.reads:
        attention = cluster.engine(read.engine).groups[read.group].attention
        if attention and read.block != NULL and read.found != read.expected:
            yield because(
                reason(
                    "attends_to",
                    "{request} attends to the KV of prefix {expected:quoted} on {engine}",
                    expected=read.expected,
                ),
                reason(
                    "slot_holds",
                    "slot {slot} of block {block} holds {found:quoted}",
                    slot=read.slot,
                    found=read.found,
                )
                if read.found
                else reason(
                    "never_written",
                    "block {block} was never written there (slot {slot})",
                    slot=read.slot,
                ),
                engine=read.engine,
                request=read.request,
                group=read.group,
                block=read.block,
            )


INVARIANT = Invariant(
    id="request_reads_its_own_prefix",
    name="a request attends only to the KV of its own prefix",
    origin="vllm#48633",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.TOKEN_READS,),
    subjects=(
        Subject.HIT,
        Subject.COMPUTED,
        Subject.HOLDERS,
        Subject.IS_FREE,
        Subject.READ,
        Subject.REAL_BLOCKS,
    ),
    killed_by="front_trim",
)
