"""Engines that a vLLM fails to make by mistake: an assertion, a key or an attribute that is
missing. That is the death of an engine before its first event. A refusal on purpose is none, and
neither is a mistake of kvproof, which does not fit this vLLM then.
"""

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.result import Result
from kvproof.invariants.engines import died
from kvproof.live.blame import is_ours, is_refusal
from kvproof.live.death import death_of
from kvproof.model.because import About, reason
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.signature import Signature

CHECK, EVENT = "engine_survives", "Start"


class EngineUnmade(Exception):
    """An engine of this cluster cannot be made, by a mistake of vLLM: `error`."""

    def __init__(self, cluster: Cluster, error: Exception) -> None:
        super().__init__(str(error))
        self.cluster = cluster
        self.error = error


def made(cluster: Cluster) -> Machine:
    """Real vLLM with the engines of a cluster. Raises EngineUnmade, and AdapterDrift where kvproof
    does not fit it or it refuses the cluster."""
    from kvproof.live.machine import LiveMachine

    try:
        return LiveMachine(cluster)
    except AdapterDrift as drift:
        error = drift.__cause__
        if isinstance(error, Exception) and is_mistake(error):
            raise EngineUnmade(cluster, error) from error
        raise


def is_mistake(error: Exception) -> bool:
    """Whether vLLM raised an exception by mistake, and not kvproof, and not on purpose."""
    return not is_ours(error) and not is_refusal(error)


def is_unmade(result: Result) -> bool:
    """Whether a result is of a workload whose engine cannot be made."""
    made_none = Signature(CHECK, EVENT, "")
    return any(each.signature == made_none and each.plan is None for each in result.breaks)


def shown(name: str, unmade: EngineUnmade) -> Result:
    """The result of a workload of this name whose engine cannot be made."""
    dead, cluster = death_of(unmade.error), unmade.cluster
    engine = cluster.engines[0].name
    must = reason("must_start", "the engines of {cluster} start with vLLM", cluster=cluster.name)
    found = Break(
        signature=Signature(CHECK, EVENT, ""),
        by="",
        death=dead.place,
        finding=Finding(CHECK, (must, died(dead)), About(engine)),
        cluster=cluster.carrying(),
        events=(),
        index_of_first=0,
        after=(),
        statement=dead.statement,
    )
    return Result(name, breaks=(found,), steps=1)
