"""The statistics that an engine counts, and those that its user receives. Both sides of the
connector count the transfers that end: the scheduler all, the workers loads. The block pool counts
look-ups."""

import copy
from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from kvproof.live.core import readers
from kvproof.live.core.readers import Metrics
from kvproof.live.observer.hooks import hooked
from kvproof.model.facts.loop import Counts

NAME = "transfers"


class Statistics:
    """The counts that both sides of the connector and the pool `noted`, and the counts that the
    user of each front `received`, by the front's name."""

    def __init__(self) -> None:
        self.noted = Counts()
        self.metrics = Metrics()
        self.fronts: Mapping[str, readers.Front] = readers.fronts(self.metrics)
        self.received = {name: Counts() for name in self.fronts}
        self._waiting = 0

    def install(self, scheduler: Any) -> None:
        """Let the scheduler side of the connector, and the block pool, count from now on."""
        hooked(scheduler.kv_cache_manager, "make_prefix_cache_stats", after=self._made)
        connector = scheduler.connector
        if connector is not None:
            update = "update_connector_output", "connector_output"
            hooked(connector, *update, after=self._updated)
            connector.get_kv_connector_stats = self._take

    def _made(self, stats: Any) -> None:
        if stats is not None:
            self.noted += Counts(lookups=stats.requests)

    def _updated(self, _answer: None, output: Any) -> None:
        ended = len(output.finished_recving or ()) + len(output.finished_sending or ())
        self.noted += Counts(ended)
        self._waiting += ended

    def _take(self, *_: Any, **__: Any) -> Any:
        ended, self._waiting = self._waiting, 0
        return _made(ended) if ended else None

    def of_workers(self, report: Any, reports: Mapping[str, set[str]]) -> None:
        """Put the counts of the workers into their report, in place of what a connector counts."""
        loads = len(reports.get("finished_recving", ()))
        report.kv_connector_stats = None
        if loads:
            report.kv_connector_stats = _made(loads)
            self.noted += Counts(loads)

    def add(self, request: Any) -> None:
        """Pass a request to the engine through each front. Each is another process, with its own
        objects: vLLM adds the later parts of a session to a list of the request."""
        for front in self.fronts.values():
            front.add(copy.deepcopy(request))

    def receive(self, outputs: Any) -> None:
        """Let the user of each front receive the outputs of a step."""
        for name, front in self.fronts.items():
            for stats in front.take(outputs):
                ended = (stats.kv_connector_stats or {}).get(NAME, 0)
                self.received[name] += Counts(ended, stats.prefix_cache_stats.requests)


def _made(count: int) -> Any:
    """Make statistics of this number of transfers, as vLLM's KVConnectorStats."""

    def aggregate(self: Any, other: Any) -> Any:
        self.data[NAME] += other.data[NAME]
        return self

    own = {"aggregate": aggregate, "is_empty": lambda self: not self.data[NAME]}
    return type("TransferStatistics", (KVConnectorStats,), own)(data={NAME: count})
