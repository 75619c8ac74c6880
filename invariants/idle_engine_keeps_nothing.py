"""The scheduler noted the ids of new blocks in a list, for a worker that erases them. Most models
have no such worker, nobody took the list, and it grew with each block until the memory of the host
was full (vllm#44490). A note by request id that stays after the end of its request does the same.

Live vLLM is asked for every container of the scheduler. What stays once may be known for ever, such
as the address of another engine; what grows from one idle time to the next is kept for nobody. In
the state itself, blocks that wait for the end of steps in flight are such a note.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """An engine without requests and without steps in flight keeps no blocks for steps to come, and
    no container of it grows from one such time to the next."""
    for kept in step.effects.kept:
        yield because(
            reason(
                "keeps_entries",
                "{where} of {engine} has {items} entries from before {engine} was idle",
                where=kept.where,
                items=kept.items,
            ),
            reason("had_fewer", "it had fewer at the idle time before, and no step takes them"),
            engine=kept.engine,
        )
    for _, engine in step.touched:
        if engine.dead or engine.requests or engine.step or engine.steps:
            continue
        for _, blocks in engine.deferred:
            yield because(
                reason("is_idle", "{engine} has no requests and no steps in flight"),
                reason(
                    "blocks_wait",
                    "blocks {blocks} wait for the end of a step",
                    blocks=sorted(blocks),
                ),
                engine=engine.name,
            )


INVARIANT = Invariant(
    id="idle_engine_keeps_nothing",
    name="an engine without requests keeps no notes about them that grow",
    origin="vllm#44490",
    severity=Severity.LEAK,
    check=check,
    needs=(Need.KEPT_WHEN_IDLE,),
    killed_by="blocks_wait_for_one_more_step",
)
