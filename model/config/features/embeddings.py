"""Prompts that are sent as embeddings instead of token ids."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal


def _tokens_apart(cluster: Cluster) -> Refusal | None:
    """Embedded tokens are capitals, so that they differ from all token ids."""
    embedded = {token: job.name for job in cluster.jobs if job.embeds for token in job.prompt}
    for token, name in embedded.items():
        if len(token.upper()) > 1 or token.upper() == token.lower():
            wrong = f"Job {name} embeds the token {token!r}, which has no capital"
            return Refusal(wrong, "letters")
    capitals = {token.upper() for token in embedded}
    for job in cluster.jobs:
        ids = "".join((*job.parts, "" if job.embeds else job.prompt))
        same = next((token for token in ids if token in capitals), None)
        if same is not None:
            return Refusal(
                f"Job {job.name} has the token id {same!r}, and another prompt embeds this token",
                "small letters for token ids",
            )
    return None


FEATURE = Feature(
    id="embeddings",
    section="traffic",
    name="prompts of embeddings",
    words="prompts of embeddings",
    options="`embeds` of a job",
    of=Cluster,
    used=lambda cluster: any(job.embeds for job in cluster.jobs),
    off="embeds false",
    exclusions=(
        Exclusion(
            of=Cluster,
            beside=("kv_events",),
            because="which could not name their tokens",
            live=True,
        ),
        Exclusion(of=Cluster, beside=("follow_up_turns",), live=True),
        Exclusion(
            of=Cluster,
            beside=("sessions",),
            because="where vLLM asserts that the prompt of a session has token ids",
        ),
    ),
    limits=(Limit(of=Cluster, check=_tokens_apart),),
)
