"""What vLLM 0.32.0 does, found by kvproof on the live connector. Of a prompt D has served, the end
of the attention cache is evicted and the state survives. A later prompt asks: the state's hit is
deeper than that of attention, so D takes what all groups agree on, which may be nothing, and loads
from P what it has. (Where the state is not deeper, D takes the hit of attention and loads the
rest.)"""

from collections.abc import Iterable

from kvproof.model.faults.fault import Fault


def what_all_agree_on(together: int, full: int, alone: Iterable[int]) -> int:
    """The hit of all groups, where one of them alone has more cached than full attention."""
    return together if any(tokens > full for tokens in alone) else full


FAULT = Fault(
    name="deeper_state_gives_up_hit",
    origin="kvproof, vLLM 0.32.0",
    mistake="a cached state deeper than the attention cache makes D give up the hit of the latter",
    replaces=("hit_before_load", what_all_agree_on),
    breaks=("repeated_prompt_hits",),
    cluster="pd-remnant",
    trace_events=19,
)
