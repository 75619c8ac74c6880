"""The options several commands share, and what they mean together."""

import argparse
import os
from pathlib import Path
from typing import NamedTuple, NoReturn

from kvproof.invariants.invariant import Invariant
from kvproof.invariants.registry import check_named
from kvproof.live.releases import default_cache
from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError, unknown
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.faults.registry import fault_named
from kvproof.model.presets import cluster_named
from kvproof.model.reference.rules import Rules
from kvproof.model.severity import FAIL_ON, Severity

CLUSTER = "pd-default"
"""The cluster where none is named and no fault says in which it shows."""

TRACES = Path("kvproof-traces")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are usage errors."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        said = message.rstrip(".")
        raise UsageError(
            f"The command line is wrong: {said}. Write {self.prog} --help to see what it takes."
        )


class Setup(NamedTuple):
    """What is to be looked at. `invariants` is None for all of them."""

    cluster: Cluster
    faults: tuple[Fault, ...]
    rules: Rules
    invariants: list[Invariant] | None

    @property
    def fault_names(self) -> tuple[str, ...]:
        """The names of the faults that are on."""
        return tuple(fault.name for fault in self.faults)


def setup(args: argparse.Namespace) -> Setup:
    """The cluster, rules and invariants asked for. Raises UsageError for unknown names."""
    faults = tuple(fault_named(name) for name in args.fault)
    chosen = [check_named(name) for name in args.invariant]
    return Setup(_cluster(args.config, faults), faults, rules_with(faults), chosen or None)


def _cluster(config: str | None, faults: tuple[Fault, ...]) -> Cluster:
    """The cluster named, or the one in which the faults show."""
    if config is not None:
        return cluster_named(config)
    names = sorted({fault.cluster for fault in faults}) or [CLUSTER]
    if len(names) > 1:
        raise UsageError(
            f"The faults show in different clusters, {' and '.join(names)}. "
            f"Write --config {names[0]} or another one."
        )
    return cluster_named(names[0])


def folder(text: str) -> Path:
    """A folder that is there or can be made. Refused before a search, so that no trace is lost."""
    path = Path(text)
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(
            f"The folder {text} cannot be made or written to. Write a folder that you may write to."
        )
    return path


def new_file(text: str) -> Path:
    """A file that does not exist, in a folder that does."""
    path = Path(text)
    if path.exists():
        raise UsageError(
            f"The file {path} exists and is not overwritten. Write the name of a new file."
        )
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"The file {path} is in a folder that is missing or read-only. "
            "Write a file in a folder that you may write to."
        )
    return path


def at_least_one(text: str) -> int:
    """A count given on the command line."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return number


def add_scope(parser: argparse.ArgumentParser) -> None:
    """What is looked at."""
    parser.add_argument("--config", metavar="NAME|FILE", help="a preset cluster or a JSON file")
    add_fault(parser)
    parser.add_argument(
        "--invariant",
        action="append",
        default=[],
        metavar="ID",
        help="check this invariant or guard only (repeatable)",
    )


def add_fault(parser: argparse.ArgumentParser) -> None:
    """Historical mistakes."""
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="NAME",
        help="switch a historical mistake on (repeatable)",
    )


def severity(text: str) -> Severity:
    """A severity given on the command line."""
    for one in Severity:
        if text == one.option:
            return one
    raise unknown("severity", text, (one.option for one in Severity))


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    """From which severity on a violation fails the run."""
    names = ", ".join(one.option for one in Severity)
    parser.add_argument(
        "--fail-on",
        type=severity,
        default=FAIL_ON,
        metavar="SEVERITY",
        help=f"exit with 1 for a violation that is at least so grave, of {names} "
        f"(default {FAIL_ON.option}); a lesser one is told, and the exit code is 0",
    )


def add_traces(parser: argparse.ArgumentParser) -> None:
    """Where traces go."""
    parser.add_argument(
        "--traces", type=folder, default=TRACES, metavar="DIR", help="folder for traces"
    )


def add_machine(parser: argparse.ArgumentParser, default: str | None = "model") -> None:
    """Which machine is driven; None for the one in the header of a trace."""
    said = default or "the machine of the trace"
    parser.add_argument(
        "--machine",
        choices=("model", "live"),
        default=default,
        help=f"the model or real vLLM (default: {said})",
    )


def add_release(parser: argparse.ArgumentParser) -> None:
    """Which real vLLM is driven, where it is not the one installed."""
    parser.add_argument(
        "--release", metavar="X.Y.Z", help="real vLLM is this release, from the cache folder"
    )
    add_cache(parser)


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Where releases of vLLM are kept."""
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), metavar="DIR", help="folder that keeps them"
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """How much is sampled."""
    parser.add_argument("--examples", type=at_least_one, default=200, help="episodes to run")
    parser.add_argument("--steps", type=at_least_one, default=40, help="choices in an episode")


def add_states_max(parser: argparse.ArgumentParser) -> None:
    """How much is explored."""
    parser.add_argument(
        "--states-max", type=at_least_one, default=1_000_000, help="distinct states to give up at"
    )


def add_endurance(parser: argparse.ArgumentParser) -> None:
    """What a long search may use, and what is kept of it."""
    parser.add_argument(
        "--memory-max", type=at_least_one, metavar="MIB", help="memory to give up at, in MiB"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="keep the search in this file as it goes"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the checkpoint, where it was stopped"
    )
