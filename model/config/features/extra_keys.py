"""Requests with a salt or a LoRA adapter, whose KV nobody else may read."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.extra_keys import FIRST, LETTERS
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal


def _letters(cluster: Cluster) -> Refusal | None:
    """Only letters have other forms, and nobody else may use these."""
    others = {chr(ord(first) + place) for first in FIRST.values() for place in range(len(LETTERS))}
    for job in cluster.jobs:
        strange = sorted(set(job.prompt) & others or set(job.prompt) - set(LETTERS))
        if strange and (job.extra_key or strange[0] in others):
            return Refusal(
                f"Job {job.name} has the token {strange[0]!r}, which has no meaning here",
                "small letters from a to z",
            )
        if job.extra_key and (job.embeds or job.parts or job.follows):
            return Refusal(
                f"Job {job.name} has an extra key and is a prompt of embeddings, a session or a "
                "follow-up turn, which kvproof does not model together",
                "a job with token ids that arrives whole",
            )
    return None


FEATURE = Feature(
    id="extra_keys",
    section="traffic",
    name="extra keys",
    words="requests with a salt or a LoRA adapter",
    options="`extra_keys`, `extra_key` of a job",
    of=Cluster,
    used=lambda cluster: cluster.extra_keys,
    on="extra_keys true",
    off="extra_keys false",
    job_field="extra_key",
    exclusions=(
        Exclusion(of=Cluster, beside=("kv_events",), because="which name token ids alone"),
        Exclusion(of=Cluster, beside=("follow_up_turns",)),
        Exclusion(of=Cluster, beside=("sessions",)),
    ),
    limits=(Limit(of=Cluster, check=_letters),),
    draw=lambda settings: settings.on_cluster(extra_keys=True),
)
