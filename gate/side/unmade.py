"""Engines that a vLLM fails to make by mistake: an assertion, a key or an attribute that is
missing. That is the death of an engine before its first event. A refusal on purpose is none, and
neither is a mistake of kvproof, which does not fit this vLLM then.

kvproof's engines have small sizes, which vLLM may assume not to be. So an engine counts as dead
only where vLLM fails in the same way to make one in the sizes that users have.
"""

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Broken, Record
from kvproof.gate.difference.result import Result
from kvproof.invariants.engines import died
from kvproof.live.blame import is_mistake
from kvproof.live.contract.lookup import last_line
from kvproof.live.death import death_of
from kvproof.model.because import About, reason
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, NotValid
from kvproof.model.finding import Finding, Signature
from kvproof.model.machine import Machine

CHECK, EVENT = "engine_survives", "Start"


class EngineUnmade(Exception):
    """An engine of this cluster cannot be made, by a mistake of vLLM: `error`."""

    def __init__(self, cluster: Cluster, error: Exception) -> None:
        super().__init__(str(error))
        self.cluster = cluster
        self.error = error


def made(cluster: Cluster) -> Machine:
    """Real vLLM with the engines of a cluster. Raises EngineUnmade, and AdapterDrift where kvproof
    does not fit it, where it refuses the cluster, or where it fails for the sizes that kvproof
    chose."""
    from kvproof.live.machine import LiveMachine

    try:
        return LiveMachine(cluster)
    except AdapterDrift as drift:
        error = drift.__cause__
        if not isinstance(error, Exception) or not is_mistake(error):
            raise
        if _fails_in_user_sizes(cluster, error):
            raise EngineUnmade(cluster, error) from error
        why = f"vLLM fails with the sizes that kvproof chose ({last_line(error)})"
        raise AdapterDrift(f"{why}, and not in the same way with those of users") from error


def _fails_in_user_sizes(cluster: Cluster, error: Exception) -> bool:
    """Whether vLLM fails in the same way while it makes these engines in the sizes that users
    have."""
    from kvproof.live import user_sizes

    try:
        for each in user_sizes.made(cluster):
            each.shutdown()
    except AdapterDrift as drift:
        again = drift.__cause__
        return isinstance(again, Exception) and _where(again) == _where(error)
    except NotValid:  # some size is then too large
        pass
    return False


def _where(error: Exception) -> tuple[str, str]:
    """The kind of an exception with the function and the statement that raised it."""
    death = death_of(error)
    return death.place, death.statement


def is_unmade(result: Result) -> bool:
    """Whether a result is of a workload whose engine cannot be made."""
    made_none = Signature(CHECK, EVENT, "")
    return any(each.signature == made_none and each.plan is None for each in result.breaks)


def shown(name: str, unmade: EngineUnmade, runs: int = 0) -> Result:
    """The result of a workload of this name whose engine cannot be made, with a record for each of
    the `runs` that were given."""
    dead, cluster = death_of(unmade.error), unmade.cluster
    engine = cluster.engines[0].name
    must = reason("must_start", "the engines of {cluster} start with vLLM", cluster=cluster.name)
    found = Break(
        signature=Signature(CHECK, EVENT, ""),
        by="",
        death=dead.place,
        finding=Finding(CHECK, (must, died(dead)), About(engine)),
        cluster=cluster.carrying(),
        statement=dead.statement,
    )
    record = Record(broken=(Broken(found.need),))
    return Result(name, breaks=(found,), steps=1, records=(record,) * runs)
