"""P delivers the state of as many tokens as it computed; D continues from as many as it counts as
loaded. One too many or too few on either side is a token applied twice or lost (#37310)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachState, Invariant, Reasons
from kvproof.model.config import Cluster
from kvproof.model.state import State


def check(cluster: Cluster, state: State) -> Iterator[Reasons]:
    """Tokens P has computed = tokens D counts as computed after the load."""
    decode = state.engine(cluster.decode.name)
    for transfer in state.transfers:
        request = decode.find(transfer.request)
        if transfer.phase != "reading" or request is None:
            continue
        loaded = request.hit + request.external
        if loaded != transfer.tokens:
            yield (
                f"P hands over the KV and states of {transfer.tokens} tokens of {request.id}",
                f"D counts {loaded} tokens as computed after the load",
            )


INVARIANT = Invariant(
    id="prefill_and_decode_agree",
    name="P and D agree on N-1: the tokens P delivers are those D counts as computed",
    born_of="vllm#37310",
    check=EachState(check),
    teeth="decode_loads_whole_prompt",
)
