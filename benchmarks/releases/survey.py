"""The survey of one release in its own process: `python -m benchmarks.releases.survey OUT`.

The survey drives the vLLM that this process imports and checks the invariants; the guards were not
tried on older releases. At its end it writes one record for each sampled cluster and each replayed
trace. If this release cannot drive a cluster, its record has the reason. Violations are written as
traces to a folder.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.releases.recognised import departed, made_by, on_the_model, repeats, trap
from kvproof.gate.difference.judged import Break, Judgement, followed, sampled
from kvproof.live import children
from kvproof.live.availability import installed
from kvproof.live.contract.features import CORE
from kvproof.live.contract_check import check
from kvproof.live.known.registry import KNOWN
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.events import Event
from kvproof.model.faults.registry import fault_named
from kvproof.model.files.writing import write_new
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces import trace as trace_file
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_reader import read

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

IsOwn = Callable[[Break], bool]
"""Whether a break is the one that the trace of a record was made for."""


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
        self,
        cluster: Cluster,
        kind: str,
        name: str,
        run: Callable[[], Judgement],
        own: IsOwn = lambda _found: False,
    ) -> dict[str, Any]:
        """The result of one survey, or the reason why it could not be made."""
        record: dict[str, Any] = {"kind": kind, "name": name, "cluster": cluster.name}
        try:
            found = run()
        except AdapterDrift as drift:
            return record | {"reason": drift.why}
        except Exception as error:  # a mistake of the adapter on this release, not a defect of vLLM
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            return record | {"reason": f"kvproof's adapter fails here ({message})"}
        return record | {
            "runs": found.runs,
            "steps": found.steps,
            "died": found.died,
            "death": found.death,
            "skipped": found.skipped,
            "broken": [
                self._broken(f"{name.replace('/', '-')}-{index}", each, found, own(each))
                for index, each in enumerate(found.breaks.values())
            ],
        }

    def _broken(self, name: str, broken: Break, found: Judgement, own: bool) -> dict[str, Any]:
        cluster, events, finding = broken.cluster, broken.events, broken.finding
        kept = Trace(cluster, events, None, finding, machine="live", vllm=self.version)
        path = trace_file.write_in(self.traces, f"{name}-{finding.invariant}", kept)
        return {
            "invariant": finding.invariant,
            "event": broken.signature.event,
            "feature": broken.signature.feature,
            "by": broken.by,
            "death": broken.death,
            "own": own,
            "stray": any(type(event).__name__ == "StrayReport" for event in events),
            "reasons": list(finding.sentences),
            "runs": found.counts[broken.key],
            "after": [{"invariant": k.signature.check, "by": k.by} for k in broken.after],
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

        def run() -> Judgement:
            return sampled(cluster, self.make, seed, episodes, STEPS, known=KNOWN.values())

        return self.record(cluster, "sampled", name, run) | {"without": without}

    def follow(
        self, trace: Trace, name: str, own: IsOwn | None = None, led: Sequence[Event] = ()
    ) -> dict[str, Any]:
        """Replay the stimuli of a trace, and report whether they show its finding here. If nothing
        is shown, this says something only if the events `led` were taken as in the trace. Raises
        UsageError if the trace has no finding."""
        cluster, events, finding = trace.cluster, trace.events, trace.finding
        if finding is None:
            raise UsageError(f"{name} has no finding. Use a trace with a finding.")

        taken: list[Event] = []

        def run() -> Judgement:
            judgement = followed(cluster, self.make, events, known=KNOWN.values())
            taken.extend(judgement.course.taken)
            return judgement

        def repeated(found: Break) -> bool:
            return repeats(cluster, events[-1], finding, found)

        record = self.record(cluster, "followed", name, run, own or repeated)
        shown = any(broken["own"] for broken in record.get("broken", ()))
        return record | {
            "invariant": finding.invariant,
            "shown": shown,
            "events": len(events),
            "departed": departed(led, taken),
        }

    def witness(self, trace: Trace, name: str) -> dict[str, Any]:
        """A run that shows a fault: the shortest run of the model with the fault, or the trace of
        the finding of this name, which was recorded on live vLLM."""
        fault = fault_named(name)
        about: Finding | None = trace.finding
        label = f"{name}/{about.invariant if about else ''}/{trace.cluster.name}/{trace.machine}"
        led = trap(trace.cluster, trace.events, fault)
        if trace.machine == "live":
            record = self.follow(trace, label, lambda found: found.by == name, led)
        else:
            model = on_the_model(trace.cluster, trace.events, fault, KNOWN.values())
            record = self.follow(trace, label, lambda found: made_by(fault, model, found), led)
        return record | {"fault": name}


def records(version: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The records, one by one. Raises UsageError."""
    surveyor = Surveyor(version, args.traces)
    for path in sorted(args.witnesses.glob("*.jsonl")):
        yield surveyor.witness(read(path), path.stem.split("-")[1])
    yield from (surveyor.sample(name, args.seed, args.episodes) for name in SAMPLED)


def main(argv: Sequence[str] | None = None) -> int:
    """Survey, and write the records to a new file. Returns 0, or 3 with the reason on standard
    error if this vLLM cannot be driven at all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.releases.survey", description=__doc__
    )
    parser.add_argument("out", type=Path, help="the file to write")
    parser.add_argument("--traces", type=Path, required=True, help="folder for traces")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--witnesses", type=Path, required=True, help="folder with traces NUMBER-FAULT.jsonl"
    )
    args = parser.parse_args(argv)
    children.end_with_parent()
    try:
        version = installed()
        write_new(args.out, json.dumps({"vllm": version, "records": [*records(version, args)]}))
    except (UsageError, AdapterDrift) as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
