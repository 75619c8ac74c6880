"""This module has workers on a Ray cluster. Every node has this kvproof, and the same vLLM where
one is driven.

A unit whose worker or node ends is given out again, here and not by Ray, so that it is counted.
"""

import itertools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from kvproof.campaign.processes import UNITS_MAX, Losses, Work
from kvproof.model.errors import UsageError

CPU = "CPU"

_works: dict[bytes, Work] = {}
"""The work of this process, made once for each campaign."""


class OnRay:
    """Work on the CPUs of a Ray cluster: the one at this address, or a new one on this machine
    where the address is empty. `make` makes the work of a process on any node. Raises UsageError
    where Ray is missing or cannot be reached."""

    def __init__(self, address: str, make: Callable[[], Work]) -> None:
        if find_spec("ray") is None:
            raise UsageError(
                "Ray is not installed. Use pip install ray, or --workers N for processes on this "
                "machine."
            )
        import ray

        self.ray: Any = ray
        try:
            ray.init(
                address or "local",
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"Ray cannot be reached ({str(error).splitlines()[0]:.200}). Use the address of a "
                "running cluster, or --ray alone for one on this machine."
            ) from error
        self.size = max(int(ray.cluster_resources().get(CPU, 1)), 1)
        self.capacity = 2 * self.size
        self.losses = Losses()
        self.make = ray.put(make)
        self.key = self.make.binary()
        self.task = ray.remote(num_cpus=1, max_retries=0, max_calls=UNITS_MAX)(_carry_out)
        self.running: dict[Any, tuple[int, bytes]] = {}

    def give(self, number: int, unit: bytes) -> None:
        """Give a unit to the cluster."""
        self.running[self.task.remote(self.key, self.make, unit)] = number, unit

    def next(self, wait_s: float) -> tuple[int, bytes] | None:
        """Return the number of a unit that has ended, and its result; None if none ends in time."""
        ended, _ = self.ray.wait(list(self.running), num_returns=1, timeout=wait_s)
        for reference in itertools.islice(ended, 1):
            number, unit = self.running.pop(reference)
            try:
                return number, self.ray.get(reference)
            except self.ray.exceptions.RayTaskError:
                raise
            except self.ray.exceptions.RayError:
                result = self.losses.result(number)
                if result is not None:
                    return number, result
                self.give(number, unit)
        return None

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        self.ray.shutdown()


def _carry_out(key: bytes, make: Callable[[], Work], unit: bytes) -> bytes:
    """Carry out a unit on any node, and return its result."""
    if key not in _works:
        _works[key] = make()
    return _works[key](unit)
