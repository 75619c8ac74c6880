"""Prompts that are sent as embeddings instead of token ids."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Exclusion, Feature

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
        Exclusion(of=Cluster, beside=("store",), because="which knows prompts by their token ids"),
        Exclusion(of=Cluster, beside=("kv_events",), because="which could not name their tokens"),
        Exclusion(of=Cluster, beside=("follow_up_turns",)),
    ),
)
