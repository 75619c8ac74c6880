"""What both sides of the connector count, and what the user of the engine receives of it. The
connector of the loop counts the transfers that end: on the scheduler all, on the workers loads."""

from collections.abc import Mapping
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

NAME = "transfers"


class Statistics:
    """The numbers of transfers that both sides `noted`, and that a user `received`."""

    def __init__(self) -> None:
        self.noted = self.received = 0
        self._waiting = 0

    def install(self, connector: Any) -> None:
        """The scheduler's side of the connector counts from now on."""
        if connector is None:
            return
        update = connector.update_connector_output

        def updated(output: Any) -> None:
            update(output)
            ended = len(output.finished_recving or ()) + len(output.finished_sending or ())
            self.noted += ended
            self._waiting += ended

        connector.update_connector_output = updated
        connector.get_kv_connector_stats = self._take

    def _take(self) -> Any:
        ended, self._waiting = self._waiting, 0
        return _made(ended) if ended else None

    def of_workers(self, report: Any, reports: Mapping[str, set[str]]) -> None:
        """The workers add what they counted to their report."""
        loads = len(reports.get("finished_recving", ()))
        if loads:
            report.kv_connector_stats = _made(loads)
            self.noted += loads

    def receive(self, of_scheduler: Any) -> None:
        """The user receives the statistics of a step."""
        stats = of_scheduler.kv_connector_stats if of_scheduler is not None else None
        self.received += (stats or {}).get(NAME, 0)


def _made(count: int) -> Any:
    """Statistics of this number of transfers, as vLLM's KVConnectorStats."""

    def aggregate(self: Any, other: Any) -> Any:
        self.data[NAME] += other.data[NAME]
        return self

    own = {"aggregate": aggregate, "is_empty": lambda self: not self.data[NAME]}
    return type("TransferStatistics", (KVConnectorStats,), own)(data={NAME: count})
