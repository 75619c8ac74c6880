"""D's attention cache covers all tokens that P offers, and D has no Mamba state. vLLM asks the
connector for tokens after this hit, and there are none. When it reduces the hit, it does not ask
the connector again."""

from kvproof.live.deviations.facts import admission, covered, offer, on_decode, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Nothing is loaded, and full attention has cached all blocks of the offer."""
    admitted, offered = admission(step, about), offer(cluster, step, about)
    if admitted is None or offered is None or admitted.external:
        return False
    connected = on_decode(cluster, about) or on_prefill(cluster, about)
    return connected and covered(cluster, admitted, offered.tokens)


DEVIATION = Deviation(
    name="full_hit_gives_up_load",
    says="if D's attention cache covers the offer and D has no state, D loads nothing",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
    at_work=at_work,
)
