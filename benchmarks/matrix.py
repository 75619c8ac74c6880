"""Which engine finds which fault: the explorer, Hypothesis, the proofs.

    python benchmarks/matrix.py [FAULT ...] [--config NAME] [--examples N] [--states-max N]

runs these faults, by default all of them after a row without a fault, in which no engine may find
a violation. Each other row must be found by an engine. Otherwise the exit code is 1; it is 3 where
a search was cut. The proofs are asked for the obligations that a fault can refute, not for all.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvproof.model.faults.fault import Fault, planted
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.proofs import prove
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome, Verdict

NO_FAULT = "(no fault)"
CLUSTER = "pd-default"
"""The cluster of the row without a fault."""


class Row(NamedTuple):
    """A fault, the cluster in which it was searched, and the outcome of each engine by its name."""

    name: str
    cluster: str
    outcomes: dict[str, Outcome]

    @property
    def verdict(self) -> Verdict:
        """VIOLATED if the engines are wrong about this row, UNKNOWN if they may be wrong."""
        verdicts = {outcome.verdict for outcome in self.outcomes.values()}
        found = Verdict.VIOLATED in verdicts
        if self.name == NO_FAULT and found:
            return Verdict.VIOLATED
        if self.name != NO_FAULT and found:
            return Verdict.SAMPLED
        if Verdict.UNKNOWN in verdicts:
            return Verdict.UNKNOWN
        return Verdict.SAMPLED if self.name == NO_FAULT else Verdict.VIOLATED

    def lines(self) -> Iterator[str]:
        """The row as text: what each engine found, with the length of its trace."""
        yield f"{self.name} (cluster {self.cluster})"
        for engine, outcome in self.outcomes.items():
            yield f"    {engine:8} {_cell(outcome)}"


def _cell(outcome: Outcome) -> str:
    if outcome.verdict is not Verdict.VIOLATED or outcome.finding is None:
        return "-" if outcome.verdict is not Verdict.UNKNOWN else f"UNKNOWN: {outcome.reason}"
    length = f"{len(outcome.events)} events: " if outcome.events else ""
    return f"{length}{outcome.finding.invariant}"


def concerned(fault: Fault | None) -> list[str]:
    """The ids of the obligations that a fault can refute; of no fault, all."""
    if fault is None:
        return list(prove.everything())
    arithmetic = any(name.startswith("arithmetic.") for name in fault.replaces)
    return [*(OBLIGATIONS if arithmetic else ()), *sorted(fault.all_refuted)]


def row(fault: Fault | None, config: str | None, examples: int, states_max: int) -> Row:
    """Run each engine with a fault, in this cluster or by default in its preset."""
    cluster = cluster_named(config or (fault.cluster if fault else CLUSTER))
    with planted(*([fault] if fault else [])):
        names = concerned(fault)
        proofs = prove.prove(names=names)
        outcomes = {
            "explore": explore(cluster, states_max=states_max),
            "sample": sample(cluster, ModelMachine, examples=examples),
            "prove": prove.outcome(proofs) if names else Outcome(Verdict.PROVED),
        }
    return Row(fault.name if fault else NO_FAULT, cluster.name, outcomes)


def exit_code(rows: Sequence[Row]) -> int:
    """0 if the engines are right about each row, 1 if they are wrong, 3 if that is not known."""
    verdicts = [each.verdict for each in rows]
    return 1 if Verdict.VIOLATED in verdicts else 3 if Verdict.UNKNOWN in verdicts else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows, and which of them are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("faults", nargs="*", metavar="FAULT")
    parser.add_argument("--config")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--states-max", type=int, default=1_000_000)
    args = parser.parse_args(argv)
    chosen = [fault_named(name) for name in args.faults] or [None, *FAULTS.values()]
    rows = []
    for fault in chosen:
        rows.append(row(fault, args.config, args.examples, args.states_max))
        print("\n".join(rows[-1].lines()), flush=True)
    wrong = [each.name for each in rows if each.verdict is not Verdict.SAMPLED]
    print(f"Found by no engine, or found without a fault: {', '.join(wrong) or 'none'}.")
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
