"""P preempted a request while its last token was in flight. The token arrived and ended the
request, and P offered a request that had lost its blocks (vllm#50297). D then loaded other blocks
than those of its prompt, or died where it paired the lists."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.invariants.parties import giver
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import State


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """A request ends with computed tokens, and the sender offers the KV of these."""
    for transfer in state.transfers:
        if transfer.phase == Phase.OFFERED and transfer.tokens < 1:
            source, sent = giver(cluster, transfer.request)
            yield because(
                reason("offers_kv", "{engine} offers the KV of {request}"),
                reason(
                    "has_computed",
                    "{engine} has computed {tokens} of its tokens",
                    tokens=transfer.tokens,
                ),
                engine=source.name,
                request=sent,
            )


INVARIANT = Invariant(
    id="offer_has_tokens",
    name="P offers the KV of at least one token",
    origin="vllm#50297",
    severity=Severity.WRONG_TOKENS,
    check=EachState(check),
    needs=(Need.OFFERS,),
    killed_by="preempted_prefill_is_offered",
)
