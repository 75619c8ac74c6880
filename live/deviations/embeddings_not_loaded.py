"""D computes the number of offered tokens from the token ids of the prompt. A prompt of embeddings
has no token ids."""

from kvproof.live.deviations.facts import admission, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The prompt is submitted as embeddings, and nothing is loaded."""
    admitted = admission(step, about)
    return cluster.job(about.request).embeds and admitted is not None and not admitted.external


DEVIATION = Deviation(
    name="embeddings_not_loaded",
    says="D loads nothing of a prompt that is submitted as embeddings",
    signatures=seen("offered_tokens_are_loaded", "Schedule"),
    at_work=at_work,
)
