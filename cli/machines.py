"""This module makes the machine that a command drives. vLLM is imported only if live vLLM is
driven."""

import functools
import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.faults.fault import Fault
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import Machine, MakeMachine, ModelMachine
from kvproof.reports import live_line
from kvproof.reports.screen import say
from kvproof.strategies.verdict import Outcome, Verdict


class Maker(NamedTuple):
    """How to make a fresh machine, and which vLLM it uses.

    `search` makes the machine for a search. For live vLLM it has the known findings: `met` counts
    the findings that each known one explains. `alike` has, by check, the known finding that a
    finding looks like whose cause was not at work.
    """

    name: str
    make: MakeMachine
    search: MakeMachine
    vllm: str | None = None
    met: Counter[str] | None = None
    alike: Mapping[str, str] = {}


def maker(name: str, faults: Sequence[Fault] = ()) -> Maker:
    """Return the maker of this machine. vLLM is imported here, so that its import is in the time of
    no search. Raises UsageError if vLLM is missing, or if live vLLM is asked for with a fault. A
    live machine raises AdapterDrift if the adapter does not fit the installed vLLM, or if vLLM
    cannot be imported."""
    if name == "model":
        return Maker(name, ModelMachine, ModelMachine)
    if faults:
        raise UsageError(
            "A fault is a mistake of the model, and real vLLM runs without faults. Use "
            "--machine model, or leave the fault out."
        )
    from kvproof.live.availability import installed
    from kvproof.strategies.conformance.watched import Watched

    version = installed()
    _import()
    met: Counter[str] = Counter()
    alike: dict[str, str] = {}

    known = functools.cache(_known)

    def watched(cluster: Cluster) -> Machine:
        machine = _live(cluster)  # first: it raises AdapterDrift where there is nothing to drive
        return Watched(machine, known(), met, alike)

    return Maker(name, _live, watched, version, met, alike)


def _known() -> tuple[KnownFinding, ...]:
    """Return the known findings that this vLLM has."""
    from kvproof.cli.profile import profile

    return profile(_live)


def _import() -> None:
    """Import vLLM, and what kvproof uses of it. An error is reported later, by each machine."""
    from kvproof.live.contract.features import CORE
    from kvproof.live.contract_check import check

    live_line.show("importing vLLM ...")
    contract = check()
    print_import_error(contract.traceback)
    if not contract.failure and not contract.missing(CORE):
        importlib.import_module("kvproof.live.machine")


def print_import_error(traceback: Iterable[str]) -> None:
    """Print the lines of vLLM that led to an error at its import to standard error: they belong to
    the author of that vLLM."""
    for line in traceback:
        say(line, file=sys.stderr)


def require_core() -> None:
    """Raise AdapterDrift if this vLLM lacks what every engine needs, or cannot be imported."""
    from kvproof.live.contract.features import CORE
    from kvproof.live.contract_check import check

    check().require([CORE])


def _live(cluster: Cluster) -> Machine:
    from kvproof.live.contract_check import require

    require(cluster)  # the next import needs the core
    from kvproof.live.machine import LiveMachine

    return LiveMachine(cluster)


def borrow(vllm: str | None, cache: Path | None, *, live: bool) -> None:
    """Make this tree the real vLLM; with None, the installed one, if there is one. Raises
    UsageError if there is no vLLM of that name, or if no real vLLM is driven."""
    if not live:
        if vllm is None:
            return
        raise UsageError(
            "--vllm selects a real vLLM, and this command does not drive one. Use "
            "--machine live, or leave --vllm out."
        )
    from kvproof.live.releases import cache_folder, needed_before
    from kvproof.live.trees import lend, named

    if vllm is not None:
        lend(named(vllm, cache), needed_before(cache_folder(cache)))
    elif find_spec("vllm") and "vllm" not in sys.modules:
        lend(named(vllm, cache))


def undriven(drift: AdapterDrift) -> Outcome:
    """Return the outcome if the adapter does not fit the installed vLLM."""
    return Outcome(Verdict.UNKNOWN, reason=str(drift))
