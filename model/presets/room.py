"""Whether the jobs of a cluster fit its engines."""

from kvproof.model.config import Cluster, Engine, Job
from kvproof.model.errors import UsageError
from kvproof.model.reference.blocks.capacity import reserved_blocks


def check_room(cluster: Cluster) -> None:
    """Raises UsageError where P or D can never admit a job.

    vLLM starts only where its longest request fits, and refuses longer ones. A single engine
    rejects them in the model too; P and D reject nothing, and the job would wait for ever.
    """
    for engine in filter(lambda e: e.connected, cluster.engines):
        for job in cluster.jobs:
            needed = reserved_blocks(engine, _tokens(engine, job))
            if needed >= engine.num_blocks:
                raise UsageError(
                    f"Job {job.name} needs {needed} blocks of engine {engine.name}, which has "
                    f"{engine.num_blocks - 1} beside the null block. Use a num_blocks of "
                    f"{needed + 1} or more, or a shorter prompt."
                )


def _tokens(engine: Engine, job: Job) -> int:
    """The tokens of a job that an engine computes or loads. The last sampled one is neither."""
    return len(job.prompt) + (job.max_tokens - 1 if engine.role == "decode" else 0)
