"""The machine a command drives. vLLM is imported only where it is asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.rules import SPEC, Rules


class Maker(NamedTuple):
    """How to make a fresh machine, and which vLLM it is."""

    name: str
    make: Callable[[Cluster], Machine]
    vllm: str | None = None


def maker(name: str, rules: Rules = SPEC) -> Maker:
    """The maker of this machine. Raises UsageError where vLLM is missing, or is to have a fault."""
    if name == "model":
        return Maker(name, lambda cluster: ModelMachine(cluster, rules))
    if name != "live":
        raise UsageError(f"There is no machine named {name!r}. Write model or live.")
    if rules != SPEC:
        raise UsageError(
            "A fault is a mistake of the model, and real vLLM is run as it is. "
            "Write --machine model, or leave the fault out."
        )
    from kvproof.live.availability import check

    version = check()
    from kvproof.live.machine import LiveMachine

    return Maker(name, LiveMachine, version)


@contextmanager
def running(make: Callable[[Cluster], Machine], cluster: Cluster) -> Iterator[Machine]:
    """A fresh machine, closed afterwards if it can be."""
    machine = make(cluster)
    try:
        yield machine
    finally:
        close = getattr(machine, "close", None)
        if close is not None:
            close()
