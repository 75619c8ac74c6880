"""The metrics of an engine that an operator reads, as its Prometheus logger exports them. A process
has one logger for all engines, so the numbers of one engine are differences from the values at its
start."""

import functools
from collections.abc import Sequence
from typing import Any

from kvproof.live import adapt
from kvproof.live.contract.lookup import last_line
from kvproof.live.startup.engine import config_of
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import Exported
from kvproof.model.plans.loop import LoopPlan

LOGGER = "vllm.v1.metrics.loggers:PrometheusStatLogger"

COUNTED = "generation_tokens_total", "iteration_tokens_total_sum"
"""The metrics that count the tokens of answers, and the tokens of all steps."""

NOW = "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"
"""The metrics with the running requests, the waiting requests, and the share of blocks that is not
free."""


class Metrics:
    """The metrics of one engine."""

    def __init__(self) -> None:
        self._logger = _logger()
        self._before = _values(COUNTED)
        self._recorded = False

    def record(self, scheduler_stats: Any, iteration_stats: Any) -> None:
        """Record the statistics of a step, as a front does."""
        self._logger.record(scheduler_stats, iteration_stats)
        self._recorded = True

    def exported(self) -> Exported:
        """The numbers that the engine has added and, once anything was recorded, the current
        values."""
        values = zip(_values(COUNTED), self._before, strict=True)
        answered, computed = (int(value - before) for value, before in values)
        return Exported(answered, computed, _values(NOW) if self._recorded else ())


@functools.cache
def _logger() -> Any:
    """Make the logger. Raises AdapterDrift where this vLLM has none."""
    plain = LoopPlan(())
    try:
        return adapt.first([LOGGER])(config_of(plain.engine, plain.num_blocks))
    except Exception as error:
        raise AdapterDrift(
            f"The metrics of this vLLM need more ({last_line(error)})", LOGGER
        ) from error


def _values(names: Sequence[str]) -> tuple[float, ...]:
    """The exported values of these names of vLLM. Raises AdapterDrift where a name is missing."""
    from prometheus_client import REGISTRY

    names = [f"vllm:{name}" for name in names]
    found: dict[str, float] = {}
    for metric in REGISTRY.restricted_registry(names).collect():
        found |= {sample.name: sample.value for sample in metric.samples}
    lacking = next((name for name in names if name not in found), "")
    if lacking:
        raise AdapterDrift(f"This vLLM exports no {lacking}", LOGGER)
    return tuple(found[name] for name in names)
