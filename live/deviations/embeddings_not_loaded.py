"""D computes the number of offered tokens from the token ids of the prompt. A prompt of embeddings
has no token ids."""

from kvproof.live.deviations.facts import admission, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import LOADING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The prompt is submitted as embeddings, and the request does not wait for a load: what it
    loads within the step comes from a store."""
    admitted, now = admission(step, about), request(step, about)
    waits = now is not None and now.status == LOADING
    return admitted is not None and cluster.job(about.request).embeds and not waits


DEVIATION = Deviation(
    name="embeddings_not_loaded",
    says="D loads nothing of a prompt that is submitted as embeddings",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
    at_work=at_work,
)
