"""Which claims about counts say a part of what a check says."""

from kvproof.model.faults.registry import FAULTS
from kvproof.proofs.registry import OBLIGATIONS


def claims_about(check: str) -> tuple[str, ...]:
    """The obligations and the claims that a fault refutes which breaks this check: they are proved
    for all sizes."""
    breaking = {fault.name: fault for fault in FAULTS.values() if check in fault.breaks}
    refuted = [each.id for each in OBLIGATIONS.values() if each.killed_by in breaking]
    refuted += sorted(claim for fault in breaking.values() for claim in fault.all_refuted)
    return tuple(dict.fromkeys(refuted))
