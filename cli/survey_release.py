"""The survey of one release in its own process: `python -m kvproof.cli.survey_release OUT`.

The survey drives the vLLM that this process imports and checks the invariants; the guards were not
tried on older releases. At its end it writes JSON Lines: a header, one record for each sampled
cluster and each replayed trace, and an end record. If this release cannot drive a cluster, its
record has the reason. Violations are written as traces to a folder.
"""

if __name__ == "__main__":  # before the imports, during which a signal may come
    import sys

    from kvproof.cli import start

    start.program("kvproof.cli.survey_release")

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kvproof.live import children
from kvproof.live.availability import installed
from kvproof.live.contract.features import CORE
from kvproof.live.contract_check import check
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.files.writing import write_new
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces import trace as trace_file
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.difference.judged import Break, Judgement, followed, sampled
from kvproof.strategies.witnesses import Witness, witnesses

SAMPLED = (
    "full-evicting",
    "window",
    "state",
    "hybrid",
    "hybrid-chunked",
    "hybrid-evicting",
    "hybrid-siblings",
    "three",
    "pd-full",
    "pd-window",
    "pd",
    "pd-aborting",
    "pd-recomputing",
    "pd-default",
)
"""The clusters for random episodes."""

STEPS = 30
"""Number of choices in an episode."""


class Surveyor:
    """Surveys the vLLM of this process and makes the records. Raises AdapterDrift if nothing of it
    can be driven."""

    def __init__(self, version: str, traces: Path) -> None:
        check().require([CORE])
        from kvproof.live.machine import LiveMachine

        self.make: Callable[[Cluster], Machine] = LiveMachine
        self.version = version
        self.traces = traces

    def record(
        self, cluster: Cluster, kind: str, name: str, run: Callable[[], Judgement]
    ) -> dict[str, Any]:
        """The result of one survey, or the reason why it could not be made."""
        record: dict[str, Any] = {"kind": kind, "name": name, "cluster": cluster.name}
        try:
            survey = run()
        except AdapterDrift as drift:
            return record | {"reason": drift.why}
        except Exception as error:  # a mistake of the adapter on this release, not a defect of vLLM
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            return record | {"reason": f"kvproof's adapter fails here ({said})"}
        return record | {
            "runs": survey.runs,
            "steps": survey.steps,
            "died": survey.died,
            "death": survey.death,
            "broken": [self._broken(name, b, survey) for b in survey.breaks.values()],
        }

    def _broken(self, name: str, broken: Break, survey: Judgement) -> dict[str, Any]:
        invariant, reasons = broken.finding.invariant, broken.finding.reasons
        cluster, events, finding = broken.cluster, broken.events, broken.finding
        kept = Trace(cluster, events, None, finding, machine="live", vllm=self.version)
        path = trace_file.write_in(self.traces, f"{name.replace('/', '-')}-{invariant}", kept)
        return {
            "invariant": invariant,
            "reasons": list(reasons),
            "runs": survey.counts[broken.key],
            "after": [key.signature.check for key in broken.after],
            "events": len(events),
            "trace": path.name,
        }

    def sample(self, name: str, seed: int, episodes: int) -> dict[str, Any]:
        """Random episodes of a preset, without the options that this release does not have."""
        cluster = CLUSTERS[name]
        without = []
        if cluster.failures and check().missing("failed loads"):
            cluster = replace(cluster, failures=0)
            without = ["failed loads"]
        record = self.record(
            cluster, "sampled", name, lambda: sampled(cluster, self.make, seed, episodes, STEPS)
        )
        return record | {"without": without}

    def follow(self, cluster: Cluster, name: str, events: Any, finding: Finding) -> dict[str, Any]:
        """Replay the stimuli of a trace, and report whether they show its finding here."""
        found: list[Judgement] = []

        def run() -> Judgement:
            found.append(followed(cluster, self.make, events))
            return found[-1]

        record = self.record(cluster, "followed", name, run)
        shown = bool(found) and any(
            k.signature.check == finding.invariant for k in found[-1].breaks
        )
        return record | {"invariant": finding.invariant, "shown": shown}

    def witness(self, witness: Witness) -> dict[str, Any]:
        """The shortest run of the model with a fault that violates an invariant."""
        fault, finding = witness.fault, witness.finding
        name = f"{fault.name}/{finding.invariant}/{witness.cluster.name}"
        return self.follow(witness.cluster, name, witness.events, finding) | {"fault": fault.name}


def _witnesses(folder: Path | None) -> Iterator[Witness]:
    """The runs to replay, from the traces of a folder if one is given. Raises UsageError."""
    if folder is None:
        yield from witnesses(FAULTS.values())
        return
    for path in sorted(folder.iterdir()):
        trace = read(path)
        assert trace.finding is not None, path
        yield Witness(fault_named(trace.faults[0]), trace.cluster, trace.events, trace.finding)


def records(version: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The records between header and end, one by one."""
    surveyor = Surveyor(version, args.traces)
    if args.trace is not None:
        trace = read(args.trace)
        if trace.finding is None:
            raise UsageError(f"{args.trace} has no finding. Use a trace with a finding.")
        yield surveyor.follow(trace.cluster, args.trace.name, trace.events, trace.finding)
        return
    yield from (surveyor.witness(witness) for witness in _witnesses(args.witnesses))
    yield from (surveyor.sample(name, args.seed, args.episodes) for name in SAMPLED)


def main(argv: Sequence[str] | None = None) -> int:
    """Survey, and write the records to a new file. Returns 0, or 3 with the reason on standard
    error if this vLLM cannot be driven at all."""
    parser = argparse.ArgumentParser(
        prog="python -m kvproof.cli.survey_release", description=__doc__
    )
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--traces", type=Path, required=True, help="folder for traces")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--witnesses", type=Path, help="folder with traces to replay")
    parser.add_argument("--trace", type=Path, help="replay only this trace")
    args = parser.parse_args(argv)
    children.end_with_parent()
    try:
        version = installed()
        lines = ({"vllm": version}, *records(version, args), {"end": True})
        write_new(args.out, "".join(json.dumps(line) + "\n" for line in lines))
    except (UsageError, AdapterDrift) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 3
    return 0
