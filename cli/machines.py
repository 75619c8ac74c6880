"""The machine a command drives. vLLM is imported only where it is asked for."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError, unknown
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.rules import SPEC, Rules

Make = Callable[[Cluster], Machine]


class Maker(NamedTuple):
    """How to make a fresh machine, and which vLLM it is.

    `search` makes the machine that a search drives. Live vLLM is driven with the model beside it,
    which has the faults this release is known for: what they explain is counted in `explained`, by
    invariant, and is not news.
    """

    name: str
    make: Make
    search: Make
    vllm: str | None = None
    explained: Counter[str] | None = None


def maker(name: str, rules: Rules = SPEC) -> Maker:
    """The maker of this machine. Raises UsageError where vLLM is missing, or is to have a fault."""
    if name == "model":

        def model(cluster: Cluster) -> Machine:
            return ModelMachine(cluster, rules)

        return Maker(name, model, model)
    if name != "live":
        raise UsageError(f"There is no machine named {name!r}. Write model or live.")
    if rules != SPEC:
        raise UsageError(
            "A fault is a mistake of the model, and real vLLM is run as it is. "
            "Write --machine model, or leave the fault out."
        )
    from kvproof.live.availability import beside

    version = beside()
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine
    from kvproof.strategies.refinement import Shadowed

    known = deviations(version)
    explained: Counter[str] = Counter()

    def shadowed(cluster: Cluster) -> Machine:
        return Shadowed(LiveMachine(cluster), known, explained)

    return Maker(name, LiveMachine, shadowed, version, explained)


def borrow(release: str | None, cache: Path, *, live: bool) -> None:
    """Have real vLLM be of this release, where one is named. Raises UsageError where it is not in
    the cache folder, is not one the model runs beside, or no real vLLM is to be driven."""
    if release is None:
        return
    from kvproof.live.availability import BESIDE
    from kvproof.live.releases import lend

    if not live:
        raise UsageError(
            "A release is one of real vLLM, which is not driven here. "
            "Write --machine live, or leave --release out."
        )
    if release not in BESIDE:
        raise unknown("release that the model runs beside", release, BESIDE)
    lend(release, cache)


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
