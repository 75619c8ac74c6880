"""Follow-up turns: D keeps what it computed, and P loads it for the next turn."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Exclusion, Feature, Limit, Refusal
from kvproof.model.config.job import Job


def _turns_follow(cluster: Cluster) -> Refusal | None:
    if not cluster.follow_up_turns:
        return None
    turns = enumerate(cluster.jobs)
    return next(filter(None, (_turn(job, cluster.jobs[:index]) for index, job in turns)), None)


def _turn(job: Job, before: tuple[Job, ...]) -> Refusal | None:
    if not job.follows:
        return None
    if any(j.follows == job.follows for j in before):
        return Refusal(
            f"Job {job.name} follows {job.follows}, but another job follows it already",
            "the name of an earlier job that no other job follows",
        )
    first = next(j for j in before if j.name == job.follows)
    if any(a != b for a, b in zip(job.prompt, first.conversation, strict=False)):
        return Refusal(
            f"Job {job.name} follows {first.name}, but its prompt differs from that prompt and "
            "answer, which vLLM expects the router to check (vllm#43094)",
            f"a prompt that begins as {first.conversation!r} or is its beginning, or leave "
            "follows out",
        )
    return None


FEATURE = Feature(
    id="follow_up_turns",
    section="P/D",
    name="follow-up turns",
    words="follow-up turns: D keeps what it computed, and P loads it (`bidirectional_kv_xfer`)",
    options="`follow_up_turns`, `follows` of a job",
    of=Cluster,
    used=lambda cluster: cluster.follow_up_turns,
    on="follow_up_turns true",
    off="follow_up_turns false",
    needs=("pd",),
    job_field="follows",
    exclusions=(
        Exclusion(
            of=Cluster,
            beside=("push",),
            because="and vLLM's push connector has no reverse transfer",
        ),
        Exclusion(of=Cluster, beside=("drafts", "mamba"), live=True),
    ),
    limits=(Limit(of=Cluster, check=_turns_follow),),
    draw=lambda settings: settings.on_cluster(follow_up_turns=True),
)
