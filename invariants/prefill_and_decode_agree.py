"""P sends the KV and the state of the tokens that it has computed, and D continues after the tokens
that it counts as loaded. With one token too many or too few on one side, a token is applied twice
or is lost (vllm#37310). A Mamba model then continues from a wrong state."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant
from kvproof.invariants.parties import giver, is_reverse, taker
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import State

WRITTEN = (Phase.READING, Phase.OVERDUE)
"""Phases in which the receiver's blocks are being filled."""


def check(cluster: Cluster, state: State) -> Iterator[Because]:
    """P's computed tokens equal D's computed tokens after the load. In a reverse transfer, P may
    load a part if all groups are full attention."""
    for transfer in state.transfers:
        if transfer.phase not in WRITTEN:
            continue
        source, sent = giver(cluster, transfer.request)
        sink, taken = taker(cluster, transfer.request)
        request = state.engine(sink.name).find(taken)
        if request is None:
            continue
        loaded = request.hit + request.external
        divisible = is_reverse(transfer.request) and all(g.kind == "full" for g in sink.groups)
        if loaded > transfer.tokens or (loaded < transfer.tokens and not divisible):
            yield because(
                reason(
                    "sends_tokens",
                    "{source} sends the KV and states of {tokens} tokens of {sent}",
                    source=source.name,
                    tokens=transfer.tokens,
                    sent=sent,
                ),
                reason(
                    "counts_as_computed",
                    "{engine} counts {loaded} tokens as computed after the load",
                    loaded=loaded,
                ),
                engine=sink.name,
                request=taken,
            )


INVARIANT = Invariant(
    id="prefill_and_decode_agree",
    name="P and D agree on N-1: P sends as many tokens as D counts as computed",
    origin="vllm#37310",
    severity=Severity.WRONG_TOKENS,
    check=EachState(check),
    needs=(Need.LOADED_FROM_P,),
    killed_by="decode_loads_whole_prompt",
)
