"""vLLM 0.32.0, found by kvproof on the live connector. D served a prompt; later the end of its
attention blocks is evicted, and its Mamba state stays cached. For a later prompt the state's hit is
longer than the attention hit. D then uses only the common hit of all groups, which may be 0 tokens,
and loads what P offers. If the state's hit is not longer, D uses the attention hit and loads the
rest."""

from collections.abc import Iterable

from kvproof.model.faults.fault import Fault


def what_all_agree_on(together: int, full: int, alone: Iterable[int]) -> int:
    """The common hit of all groups if one group alone has more tokens cached than full attention;
    otherwise the hit of full attention."""
    return together if any(tokens > full for tokens in alone) else full


FAULT = Fault(
    name="deeper_state_gives_up_hit",
    origin="kvproof, vLLM 0.32.0",
    mistake=(
        "if a cached state covers more tokens than the attention cache, D gives up the attention "
        "hit"
    ),
    replaces=("hit_before_load", what_all_agree_on),
    breaks=("repeated_prompt_hits",),
    cluster="pd-remnant",
    trace_events=19,
)
