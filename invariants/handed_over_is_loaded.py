"""P has computed the prompt for D. When D computes it again instead of loading it, everything is
right and the whole hand-over was for nothing; nothing but the latency tells."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant, Reasons
from kvproof.model.config import Cluster
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Reasons]:
    """D hits or loads every token that P hands over."""
    for admission in step.effects.admissions:
        transfer = step.before.transfer(admission.request)
        if admission.route != "from_prefill" or transfer is None or transfer.phase != "offered":
            continue
        spared = admission.hit + admission.external
        if spared < transfer.tokens:
            yield (
                f"P offers {transfer.tokens} tokens of {admission.request}",
                f"D hits {admission.hit}, loads {admission.external} and computes the rest again",
            )


INVARIANT = Invariant(
    id="handed_over_is_loaded",
    name="D hits or loads every token that P hands over",
    born_of="kvproof, vLLM 0.32.0",
    check=check,
    teeth="full_hit_gives_up_load",
)
