"""P computed the Mamba state of all N prompt tokens. D continued from this state and computed token
N, so the state contained the token twice: "The capital of France is is Paris" (vllm#37310)."""

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
    """A request continues from the state of exactly its computed tokens."""
    for read in step.effects.reads:
        attention = cluster.engine(read.engine).groups[read.group].attention
        if not attention and read.block != NULL and read.found != read.expected:
            yield because(
                reason(
                    "computed_tokens",
                    "{request} has computed {tokens} tokens on {engine}",
                    tokens=len(read.expected),
                ),
                reason(
                    "holds_state",
                    "block {block} holds the state of {tokens} tokens ({found:quoted})",
                    tokens=len(read.found),
                    found=read.found,
                )
                if read.found
                else reason("holds_no_state", "block {block} holds no state"),
                engine=read.engine,
                request=read.request,
                group=read.group,
                block=read.block,
            )


INVARIANT = Invariant(
    id="state_read_is_state_at_computed",
    name="a request continues only from the Mamba state of exactly its computed tokens",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.STATE_READS,),
    subjects=(Subject.HIT, Subject.COMPUTED, Subject.SCHEDULED, Subject.READ, Subject.REAL_BLOCKS),
    killed_by="embeddings_not_truncated",
)
