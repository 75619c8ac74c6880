"""What one side of a comparison does for each request."""

from collections.abc import Callable
from pathlib import Path

from kvproof.invariants.registry import CHECKS
from kvproof.live.contract.features import CORE, FEATURES
from kvproof.live.contract_check import check
from kvproof.live.deviations.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.events import describe
from kvproof.model.machine import Machine
from kvproof.strategies.difference import judged
from kvproof.strategies.difference.protocol import (
    Answer,
    Drive,
    Driven,
    Missing,
    Record,
    Recorded,
    Seen,
)
from kvproof.strategies.difference.result import Result, result_of
from kvproof.strategies.difference.workload import Follow, Workload


def look() -> Seen:
    """What of this vLLM can be driven. vLLM is imported here."""
    contract = check()
    if contract.failure:
        return Seen(f"vLLM cannot be imported ({contract.failure})", ())
    missing = []
    for feature in FEATURES:
        lacking = [look for look in contract.missing(feature) if look.entry.feature == feature]
        if lacking:
            first = lacking[0]
            missing.append(Missing(feature, first.entry.name, first.why))
    try:
        contract.require([CORE])
    except AdapterDrift as drift:
        return Seen(drift.why, tuple(missing))
    import kvproof.live.machine  # noqa: F401 (all of vLLM that is driven, before the first fork)

    return Seen("", tuple(missing))


def _make(cluster: Cluster) -> Machine:
    from kvproof.live.machine import LiveMachine

    return LiveMachine(cluster)


def answer(request: Drive | Record) -> Answer:
    """Carry a request out."""
    if isinstance(request, Drive):
        return Driven(_driven(request.workload, request.reach))
    return _recorded(request)


def _driven(workload: Workload, reach: bool) -> Result:
    """The result of a workload, or the reason why it could not be run."""
    try:
        return _result(workload)
    except AdapterDrift as drift:
        return Result(workload.name, reason=drift.why, entry=drift.entry)
    except Exception as error:  # a mistake of the adapter on this vLLM, not a defect of vLLM
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return Result(workload.name, reason=f"kvproof's adapter fails here ({said})")


def _result(workload: Workload) -> Result:
    known, asked = KNOWN.values(), CHECKS.values()
    if isinstance(workload, Follow):
        found = judged.followed(workload.cluster, _make, workload.events, asked, known)
    else:
        found = judged.sampled(
            workload.cluster,
            _make,
            workload.seed,
            workload.episodes,
            workload.steps,
            asked,
            known,
        )
    return result_of(workload.name, found)


def _recorded(request: Record) -> Recorded:
    raise NotImplementedError
