"""P has computed a prompt for D and offers its blocks. In vLLM 0.32.0, D sometimes computes the
prompt again and does not load it. All answers stay correct, and the only sign is a higher
latency."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.parties import coming_to, giver, is_reverse, taker
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.needs import Need
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """D hits or loads every token that P offers. In the reverse transfer, P hits or loads every
    token that its groups can use."""
    for admission in step.effects.admissions:
        if admission.route == "local":
            continue
        name = coming_to(cluster, admission.engine, admission.request)
        transfer = step.before.transfer(name)
        if transfer is None or transfer.phase != Phase.OFFERED:
            continue
        (source, sent), sink = giver(cluster, name), taker(cluster, name).engine
        offered = transfer.tokens
        if is_reverse(name):
            offered = _usable(sink, offered, len(admission.tokens))
        if admission.hit + admission.external < offered:
            yield because(
                reason(
                    "offers",
                    "{source} offers {offered} tokens of {sent}",
                    source=source.name,
                    offered=offered,
                    sent=sent,
                ),
                reason(
                    "hits_and_loads",
                    "{engine} hits {hit} tokens, loads {external} and recomputes the rest",
                    hit=admission.hit,
                    external=admission.external,
                ),
                engine=sink.name,
                request=admission.request,
            )


def _usable(sink: EngineConfig, offered: int, prompt: int) -> int:
    """Tokens of a reverse transfer that P can use. If D has computed more tokens than this prompt
    has, full attention still has the KV of each token. A window or a Mamba state has moved on and
    is of no use."""
    if all(g.kind == "full" for g in sink.groups):
        return min(offered, prompt)
    return offered if offered < prompt else 0


INVARIANT = Invariant(
    id="offered_tokens_are_loaded",
    name="D hits or loads every token that P offers",
    origin="kvproof, vLLM 0.32.0",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.OFFERED,),
    subjects=(Subject.HIT, Subject.COMPUTED, Subject.READ),
    killed_by="full_hit_gives_up_load",
)
