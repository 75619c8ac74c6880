"""P has computed the prompt for D. When D computes it again instead of loading it, everything is
right and the whole hand-over was for nothing; nothing but the latency tells."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import coming_to, giver, goes_back, taker
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster, Engine
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """D hits or loads every token that P hands over, and P those that D hands back for the next
    turn and its groups can use."""
    for admission in step.effects.admissions:
        if admission.route == "local":
            continue
        name = coming_to(cluster, admission.engine, admission.request)
        transfer = step.before.transfer(name)
        if transfer is None or transfer.phase != "offered":
            continue
        (source, sent), sink = giver(cluster, name), taker(cluster, name).engine
        offered = transfer.tokens
        if goes_back(name):
            offered = _usable(sink, offered, len(admission.tokens))
        if admission.hit + admission.external < offered:
            yield because(
                f"{source.name} offers {offered} tokens of {sent}",
                f"{sink.name} hits {admission.hit}, loads {admission.external} and computes the "
                "rest again",
                engine=sink.name,
                request=admission.request,
            )


def _usable(sink: Engine, offered: int, prompt: int) -> int:
    """Tokens that P can use of those D has. Where D went further than this prompt, full attention
    has the KV of each token still; a window or a state has moved on, and nothing is of use."""
    if all(g.kind == "full" for g in sink.groups):
        return min(offered, prompt)
    return offered if offered < prompt else 0


INVARIANT = Invariant(
    id="offered_tokens_are_loaded",
    name="D hits or loads every token that P hands over",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    killed_by="full_hit_gives_up_load",
)
