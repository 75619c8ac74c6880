"""A worker makes pages for each layer of its config. It has the layers of its pipeline stage:
for another one it finds no group, and dies (`allocate_kv_cache`)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """Pages are of layers of the worker."""
    for index, worker in enumerate(start.workers):
        for pages in worker.pages:
            if pages.layer not in worker.layers:
                yield because(
                    reason(
                        "has", "worker {worker} has no {layer}", worker=index, layer=pages.layer
                    ),
                    reason("makes", "its config has pages for it"),
                )


RULE = EngineRule(
    id="pages_are_of_own_layers",
    name="a worker makes pages for its own layers alone",
    origin="_project_kv_cache_groups_to_worker; allocate_kv_cache",
    severity=Severity.CRASH,
    judge=judge,
)
