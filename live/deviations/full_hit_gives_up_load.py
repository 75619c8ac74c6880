"""D's attention cache covers all that P offers, and D has no state: the connector is asked for what
lies beyond the hit, which is nothing, and is not asked again when the hit is taken back."""

from kvproof.live.deviations.facts import admission, covered, offer, on_decode, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Nothing is loaded, and full attention has cached all blocks of what is offered."""
    admitted, offered = admission(step, about), offer(cluster, step, about)
    if admitted is None or offered is None or admitted.external:
        return False
    connected = on_decode(cluster, about) or on_prefill(cluster, about)
    return connected and covered(cluster, admitted, offered.tokens)


DEVIATION = Deviation(
    name="full_hit_gives_up_load",
    says="where D's attention cache covers the offer and no state is there, nothing is loaded",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
    at_work=at_work,
)
