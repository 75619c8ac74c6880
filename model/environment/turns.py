"""The phases of a reverse transfer: with follow-up turns, P asks for the blocks that D keeps of a
finished request (see `config.sides`).

Source: `NixlPullConnectorScheduler` with `bidirectional_kv_xfer` (vllm#32553).
"""

from kvproof.model.phases import Phase
from kvproof.model.state import Transfer


def requested(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it. D's lease may have ended. A second request leaves
    the phase unchanged."""
    begun = {Phase.OFFERED: Phase.READING, Phase.EXPIRED: Phase.REFUSED}
    return transfer.to(begun.get(transfer.phase, transfer.phase))


def over(transfer: Transfer) -> Transfer:
    """The reverse transfer after P requested it and D keeps no more blocks."""
    return transfer.to(Phase.CLOSED, remote=(), local=(), pairs=())


def expired(transfer: Transfer) -> Transfer:
    """The reverse transfer after D's lease ended. P may still request it, or has requested it."""
    unrequested = transfer.phase == Phase.OFFERED
    phase = Phase.EXPIRED if unrequested else Phase.CLOSED
    return transfer.to(phase, remote=(), local=(), pairs=())
