"""P has computed the prompt for D. When D computes it again instead of loading it, everything is
right and the whole hand-over was for nothing; nothing but the latency tells."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant, Reasons
from kvproof.model import counts, turns
from kvproof.model.config import Cluster
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Reasons]:
    """D hits or loads every token that P hands over, and P those that D hands back for the next
    turn and its groups can use."""
    for admission in step.effects.admissions:
        if admission.route == "local":
            continue
        name = turns.incoming(cluster, admission.engine, admission.request)
        transfer = step.before.transfer(name)
        if transfer is None or transfer.phase != "offered":
            continue
        source, sent, sink, _ = turns.parties(cluster, name)
        offered = transfer.tokens
        if turns.is_back(name):
            whole = all(g.kind == "full" for g in sink.groups)
            offered = counts.held_tokens_loaded(offered, len(admission.tokens), whole)
        if admission.hit + admission.external < offered:
            yield (
                f"{source.name} offers {offered} tokens of {sent}",
                f"{sink.name} hits {admission.hit}, loads {admission.external} and computes the "
                "rest again",
            )


INVARIANT = Invariant(
    id="handed_over_is_loaded",
    name="D hits or loads every token that P hands over",
    born_of="kvproof, vLLM 0.32.0",
    check=check,
    teeth="full_hit_gives_up_load",
)
