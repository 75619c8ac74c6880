"""Whether the jobs of a P/D pair fit its engines, and clusters with room: nothing is evicted there,
unless a long prompt comes.

Most presets and random clusters have small pools, in which a block more or less decides. What a
cache loses by mistake is not missed there: it would be evicted before it is asked for again.
"""

from msgspec.structs import replace

from kvproof.model import group_needs
from kvproof.model.arithmetic import counts
from kvproof.model.capacity import needed_blocks, reserved_blocks
from kvproof.model.config import Cluster, EngineConfig, Job
from kvproof.model.errors import NotValid


def check_room(cluster: Cluster) -> None:
    """Raises NotValid where P can never admit a job, or D never finish it.

    vLLM starts only where its longest request fits, and refuses longer ones. A single engine
    rejects them in the model too; P and D reject nothing, and the job would wait for ever.
    """
    for index, engine in enumerate(cluster.engines):
        for job in cluster.jobs if engine.connected else ():
            needed = _needed_blocks(engine, job)
            if needed >= engine.num_blocks:
                raise NotValid(
                    f"Job {job.name} needs {needed} blocks of engine {engine.name}, which has "
                    f"{engine.num_blocks - 1} beside the null block. Use a num_blocks of "
                    f"{needed + 1} or more, or a shorter prompt.",
                    f"engines[{index}].num_blocks",
                )


def _needed_blocks(engine: EngineConfig, job: Job) -> int:
    """The blocks that an engine must have to admit the prompt of a job, and in the last step of the
    job: the last sampled token is not computed."""
    computed = len(job.prompt) + (job.max_tokens - 1 if engine.role == "decode" else 0)
    last_step = sum(
        int(counts.blocks_for_tokens(computed, group.block_size))
        - group_needs.skipped_blocks(group, computed - 1)
        for group in engine.groups
    )
    return max(reserved_blocks(engine, len(job.prompt)), last_step)


SUFFIX = ":roomy"
"""The suffix of a cluster's name that stands for the same cluster with room."""

REQUESTS, TOKENS = 4, 16
"""A cluster with room can hold this number of requests, each of this number of tokens."""


def has_room(cluster: Cluster) -> bool:
    """Whether each pool of the cluster has at least this many blocks."""
    return roomy(cluster) == cluster


def roomy(cluster: Cluster) -> Cluster:
    """The cluster with pools of at least this many blocks; the cluster itself where all pools have
    them."""
    engines = tuple(
        replace(e, num_blocks=max(e.num_blocks, 1 + REQUESTS * needed_blocks(e, TOKENS)))
        for e in cluster.engines
    )
    if engines == cluster.engines:
        return cluster
    return replace(cluster, name=cluster.name.removesuffix(SUFFIX) + SUFFIX, engines=engines)
