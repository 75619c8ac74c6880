"""Streaming sessions: a prompt arrives in parts, each after the answer to the part before."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import NOT_MODELLED, Exclusion, Feature

FEATURE = Feature(
    id="sessions",
    section="traffic",
    name="sessions",
    words="streaming sessions",
    options="`sessions`, `parts` of a job",
    of=Cluster,
    used=lambda cluster: cluster.sessions,
    on="sessions true",
    off="sessions false",
    job_field="parts",
    exclusions=(
        Exclusion(of=Cluster, beside=("pd",), live=True),
        Exclusion(of=Cluster, beside=("drafts", "mamba"), live=True),
        Exclusion(
            of=Cluster,
            beside=("drafts",),
            where=lambda cluster: not cluster.prefill.overlaps,
            only="without async scheduling",
            because=f"in steps that do not overlap, {NOT_MODELLED}",
            instead="sessions false, drafts 0 or steps_in_flight 2",
            live=True,
        ),
    ),
    draw=lambda settings: settings.on_cluster(sessions=True),
)
