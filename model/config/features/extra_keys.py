"""Requests with a salt or a LoRA adapter, whose KV nobody else may read."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.extra_keys import CAPITALS, FIRST, LETTERS
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal


def _letters(cluster: Cluster) -> Refusal | None:
    """Only letters have other forms, and nobody else may use these."""
    firsts = (*FIRST.values(), *CAPITALS.values())
    others = {chr(ord(first) + place) for first in firsts for place in range(len(LETTERS))}
    for job in cluster.jobs:
        tokens = {*job.prompt, *"".join(job.parts)} - ({"."} if job.follows else set())
        strange = sorted(tokens & others or tokens - set(LETTERS))
        if strange and (job.extra_key or strange[0] in others):
            return Refusal(
                f"Job {job.name} has the token {strange[0]!r}, which has no meaning here",
                "small letters from a to z",
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
        Exclusion(
            of=Cluster, beside=("kv_events",), because="which name token ids alone", live=True
        ),
    ),
    limits=(Limit(of=Cluster, check=_letters),),
    draw=lambda settings: settings.on_cluster(extra_keys=True),
)
