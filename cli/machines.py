"""The machine a command drives. vLLM is imported only where it is asked for."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.model.reference.rules import Rules
from kvproof.strategies.verdict import Outcome, Verdict

Make = Callable[[Cluster], Machine]


class Maker(NamedTuple):
    """How to make a fresh machine, and which vLLM it is.

    `search` makes the machine that a search drives. Of live vLLM it knows the deviations: `met`
    counts the findings that they explain, by deviation, and `policy` the steps in which vLLM chose
    otherwise than the reference, by kind.
    """

    name: str
    make: Make
    search: Make
    vllm: str | None = None
    met: Counter[str] | None = None
    policy: Counter[str] | None = None


def maker(name: str, rules: Rules = REFERENCE) -> Maker:
    """The maker of this machine. Raises UsageError where vLLM is missing, or is to have a fault.
    A live machine raises AdapterDrift where the adapter does not fit the vLLM that is there."""
    if name == "model":

        def model(cluster: Cluster) -> Machine:
            return ModelMachine(cluster, rules)

        return Maker(name, model, model)
    if name != "live":
        raise UsageError(f"There is no machine named {name!r}. Write model or live.")
    if rules != REFERENCE:
        raise UsageError(
            "A fault is a mistake of the model, and real vLLM is run as it is. "
            "Write --machine model, or leave the fault out."
        )
    from kvproof.live.availability import installed
    from kvproof.live.deviations.registry import KNOWN
    from kvproof.strategies.conformance.watched import Watched

    version = installed()
    met: Counter[str] = Counter()
    policy: Counter[str] = Counter()

    def watched(cluster: Cluster) -> Machine:
        return Watched(_live(cluster), KNOWN.values(), met, policy)

    return Maker(name, _live, watched, version, met, policy)


def _live(cluster: Cluster) -> Machine:
    from kvproof.live.contract_check import require

    require(cluster)  # what follows cannot be imported without the core
    from kvproof.live.machine import LiveMachine

    return LiveMachine(cluster)


def borrow(release: str | None, cache: Path, *, live: bool) -> None:
    """Have real vLLM be of this release, where one is named. Raises UsageError where it is not in
    the cache folder, or no real vLLM is to be driven."""
    if release is None:
        return
    from kvproof.live.releases import lend

    if not live:
        raise UsageError(
            "A release is one of real vLLM, which is not driven here. "
            "Write --machine live, or leave --release out."
        )
    lend(release, cache)


def undriven(drift: AdapterDrift) -> Outcome:
    """The outcome where the adapter does not fit the vLLM that is there."""
    return Outcome(Verdict.UNKNOWN, reason=str(drift))


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
