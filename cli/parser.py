"""This module has the options that several commands share, and what they select together."""

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from kvproof.invariants.check import Check
from kvproof.invariants.registry import check_named
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError, unknown
from kvproof.model.faults.fault import Fault, replaced_by
from kvproof.model.faults.registry import fault_named
from kvproof.model.files.folders import check_folder
from kvproof.model.files.writing import check_new
from kvproof.model.presets import cluster_named
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.strategies.witnesses import refuse_wrong_names

CLUSTER = "pd-default"
"""The cluster if none is given and no fault has a preset."""

TRACES = Path("kvproof-traces")


class Setup(NamedTuple):
    """The scope of a command. `invariants` is None for all of them. `wide` says that the command
    draws its clusters; `cluster` is then no part of the scope."""

    cluster: Cluster
    faults: tuple[Fault, ...]
    invariants: list[Check] | None
    wide: bool = False

    @property
    def fault_names(self) -> tuple[str, ...]:
        """The names of the active faults."""
        return tuple(fault.name for fault in self.faults)


def setup(args: argparse.Namespace) -> Setup:
    """Return the requested cluster, faults and invariants. Raises UsageError for unknown names."""
    refuse_wrong_names()
    faults = tuple(fault_named(name) for name in args.fault)
    for fault in faults:
        cluster_named(fault.cluster)
    chosen = [check_named(name) for name in args.invariant]
    for check in chosen:
        if check.ideal:
            raise UsageError(
                f"The check {check.id} is an ideal: no machine alone is judged by it, but pairs of "
                "base and head are. Use kvproof gate."
            )
    replaced_by(faults)  # raises where two faults exclude each other
    return Setup(_cluster(args.config, faults), faults, chosen or None)


def _cluster(config: str | None, faults: tuple[Fault, ...]) -> Cluster:
    """Return the named cluster, or the preset of the faults."""
    if config is not None:
        return cluster_named(config)
    names = sorted({fault.cluster for fault in faults}) or [CLUSTER]
    if len(names) > 1:
        raise UsageError(
            f"The faults have different presets, {' and '.join(names)}. Use --config "
            f"{names[0]} or another one."
        )
    return cluster_named(names[0])


def folder(text: str) -> Path:
    """Check a folder that files are to be written into. It is tried before a search, so that no
    trace is lost."""
    return check_folder(Path(text))


def new_file(text: str) -> Path:
    """Check that a file does not exist, and that files can be made in its folder."""
    return check_new(Path(text))


def at_least_one(text: str) -> int:
    """Read a count from the command line."""
    number = int(text) if re.fullmatch("[0-9]{1,18}", text) else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 1 on")
    return number


def add_scope(
    parser: argparse.ArgumentParser, default: str = "the preset of the fault, else pd-default"
) -> None:
    """Add the options for the cluster, the faults and the invariants."""
    parser.add_argument(
        "--config",
        metavar="NAME|FILE",
        help="a preset (see kvproof explain configs; ./NAME is always a file), random:SEED, or a "
        f"JSON file (default: {default})",
    )
    add_fault(parser)
    parser.add_argument(
        "--invariant",
        action="append",
        default=[],
        metavar="ID",
        help="check this invariant or guard only (repeatable; default: all)",
    )


def add_fault(parser: argparse.ArgumentParser) -> None:
    """Add the option for historical mistakes."""
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME",
        help="give the model this historical mistake (repeatable; default: none)",
    )


def severity(text: str) -> Severity:
    """Read a severity from the command line."""
    for one in Severity:
        if text == one.option:
            return one
    raise unknown("severity", text, (one.option for one in Severity))


COSTS = "costs"
"""What `--fail-on` of the gate takes beside the severities."""


def severity_or_costs(text: str) -> Severity | str:
    """A severity, or `COSTS`, from the command line."""
    return COSTS if text == COSTS else severity(text)


def add_fail_on(
    parser: argparse.ArgumentParser, default: Severity = FAIL_ON, *, costs: bool = False
) -> None:
    """Add the option for the lowest severity that fails the run; with `costs`, it may be
    `COSTS`."""
    names = ", ".join((*(one.option for one in Severity), *[COSTS] * costs))
    parser.add_argument(
        "--fail-on",
        type=severity_or_costs if costs else severity,
        default=default,
        metavar="SEVERITY",
        help=f"exit with 1 for a violation of at least this severity, one of {names} (default "
        f"{default.option}); a lower one is reported, and the exit code is 0",
    )


def add_traces(parser: argparse.ArgumentParser) -> None:
    """Add the option for the folder of traces."""
    parser.add_argument(
        "--traces",
        type=folder,
        default=TRACES,
        metavar="DIR",
        help="folder for traces (default: %(default)s)",
    )


def add_machine(parser: argparse.ArgumentParser, default: str | None = "model") -> None:
    """Add the option for the machine. With None, the machine of the trace is the default."""
    named = default or "the machine of the trace"
    parser.add_argument(
        "--machine",
        choices=("model", "live"),
        default=default,
        help=f"the model or real vLLM (default: {named})",
    )


def add_vllm(parser: argparse.ArgumentParser) -> None:
    """Add the options for a vLLM that is not the installed one, and for the folder with releases of
    vLLM and with what is kept of other trees."""
    parser.add_argument(
        "--vllm",
        metavar="PATH|X.Y.Z",
        help="use this vLLM: a virtual environment, a site-packages folder, a source checkout, or "
        "a release of the cache folder (default: the installed one)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder for releases and other trees of vLLM (default: kvproof in the cache of the "
        "user)",
    )
