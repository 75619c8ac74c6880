"""The table of combinations of features: what vLLM accepts, and what kvproof drives.

    python benchmarks/combinations.py --vllm PATH --vllm PATH > reports/combinations.md

Each vLLM has a process. For each pair of features, and for sampled triples, random clusters that
use them are built without the refusals of kvproof. vLLM accepts a cluster if its config and its
schedulers can be built and the first requests end. kvproof drives it if the table of features does
not refuse it and the adapter can run it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from random import Random
from typing import Any

from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.features.registry import FEATURES, refuse, used_by
from kvproof.model.errors import AdapterDrift, NotAllowed, NotValid, UsageError
from kvproof.model.events import Complete, Continue, Schedule, Submit, TransferDone
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.model.presets.random_clusters import clusters_with
from kvproof.model.state import LOADING, State

DRAWN = 40
"""Clusters that are made for a combination."""
TRIED = 8
"""Clusters of a combination that are built; those that kvproof does not refuse come first."""
SWITCHES = ("Scheduler.num_hash_lookahead_tokens", "KVCacheCoordinator.enable_partial_hash_hits")
"""What vLLM switches off by itself, where a cluster has it beside what it does not go with."""
STEPS = 12
"""Events of one cluster at most."""
SEED = 28
TRIPLES = 200
ALWAYS = {"chunked_prefill"}
"""Features that every cluster uses."""
IDS = [f for f in FEATURES if f not in ALWAYS]

DRIVEN, GAP, UNFIT = "driven", "gap", "unfit"
REFUSED, OFF, ABSENT, NONE = "refused", "off", "absent", "none"
MARKS = {DRIVEN: "+", GAP: "G", UNFIT: "U", REFUSED: "-", OFF: "o", ABSENT: "a", NONE: "."}


@contextmanager
def unchecked() -> Iterator[None]:
    """Engines and clusters are not checked against the table of features."""
    before = EngineConfig.checks, Cluster.checks
    EngineConfig.checks = Cluster.checks = ()
    try:
        yield
    finally:
        EngineConfig.checks, Cluster.checks = before


def refusal(cluster: Cluster) -> str:
    """What the table of features says against a cluster; empty if nothing."""
    try:
        for part in (*cluster.engines, cluster):
            refuse(part)
    except NotValid as error:
        return str(error)
    return ""


def verdict(cluster: Cluster) -> tuple[str, str]:
    """Whether this vLLM accepts a cluster and kvproof drives it, and why not."""
    from kvproof.live.contract_check import require

    try:
        require(cluster)
    except AdapterDrift as error:
        return ABSENT, str(error).split("(")[0].strip()
    ours = refusal(cluster)
    with unchecked():
        try:
            dead = first_steps(cluster)
        except (AdapterDrift, NotAllowed, UsageError) as error:
            cause = error.__cause__
            if isinstance(error, AdapterDrift) and error.entry in SWITCHES:
                return OFF, error.why
            if isinstance(error, AdapterDrift) and raised_by_vllm(cause):
                return REFUSED, line(cause)
            return UNFIT, line(cause or error)
        except Exception as error:
            return (REFUSED if raised_by_vllm(error) else UNFIT), line(error)
    if dead:
        return REFUSED, dead
    return (GAP, ours) if ours else (DRIVEN, "")


def raised_by_vllm(error: BaseException | None) -> bool:
    """Whether the innermost frame of an exception is outside kvproof, and not in a missing name."""
    from kvproof.live import blame

    return isinstance(error, Exception) and not blame.is_ours(error)


def line(error: BaseException) -> str:
    """The first words of an error, on one line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:160].replace("|", "/")


def first_steps(cluster: Cluster) -> str:
    """Run the first requests on live vLLM. Returns why an engine died, or what has not ended where
    nothing more can come; empty otherwise."""
    from kvproof.live.machine import LiveMachine

    machine = LiveMachine(cluster)
    try:
        for _ in range(STEPS):
            kinds = (Submit, Complete, Continue, TransferDone, Schedule)
            wished = [e for e in machine.stimuli() if isinstance(e, kinds)]
            if not wished:
                return waiting(machine.state)
            machine.take(min(wished, key=lambda e: kinds.index(type(e))))
            dead = next((e.dead for e in machine.state.engines if e.dead), "")
            if dead:
                return str(dead)[:160].replace("|", "/")
    finally:
        machine.close()
    return ""


def waiting(state: State) -> str:
    """The load that a request waits for, where nothing more can come; empty if none does."""
    held = ((e.name, r) for e in state.engines for r in e.requests)
    name = next((f"{r.id} on {engine}" for engine, r in held if r.status == LOADING), "")
    return name and f"The load of {name} never ends"


def combination(features: tuple[str, ...]) -> tuple[str, str]:
    """The cell of these features: driven, if a cluster with them is accepted and driven. Otherwise
    what holds for the first clusters with them, and the reason."""
    with unchecked():
        made = clusters_with(frozenset(features), DRAWN, f"{SEED}:{features}")
    presets = (*CLUSTERS.values(), *LIVE_CLUSTERS.values())
    made += [cluster for cluster in presets if used_by(cluster) >= set(features)]
    if not made:
        return NONE, "no cluster has them together"
    made.sort(key=lambda cluster: bool(refusal(cluster)))
    found = []
    for cluster in made[:TRIED]:
        found.append(verdict(cluster))
        if found[-1][0] == DRIVEN:
            break
    for wanted in (DRIVEN, GAP, UNFIT, OFF, REFUSED):
        why = next((why for kind, why in found if kind == wanted), None)
        if why is not None:
            return wanted, why
    return found[0]


def triples() -> list[tuple[str, ...]]:
    """The sampled triples."""
    every = list(combinations(IDS, 3))
    return sorted(Random(SEED).sample(every, TRIPLES))


def one(vllm: str | None) -> dict[str, Any]:
    """All cells, in this process."""
    from kvproof.cli.machines import borrow

    borrow(vllm, None, live=True)
    from vllm import __version__

    cells = {}
    for features in [*combinations(IDS, 2), *triples()]:
        cells[" ".join(features)] = combination(features)
    return {"version": __version__, "cells": cells}


def page(runs: list[dict[str, Any]]) -> str:
    """The page of these runs."""
    lines = ["# What vLLM accepts, and what is driven", "", HOW.strip(), ""]
    lines += table(["", *(run["version"] for run in runs)], totals(runs))
    for run in runs:
        cells, version = run["cells"], run["version"]
        lines += ["", f"## Pairs on {version}", ""]
        lines += table(["", *map(str, range(1, len(IDS) + 1))], rows(cells))
        for kinds, title in ((GAPS, "Gaps"), ({REFUSED, OFF}, "Refused or switched off by vLLM")):
            named = [(", ".join(f.split()), w) for f, (k, w) in cells.items() if k in kinds]
            lines += ["", f"### {title} on {version}", "", *table(["features", "why"], named)]
    return "\n".join(lines)


def totals(runs: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """How many pairs and triples there are of each kind, a column for each run."""
    for words, size in (("pairs", 2), ("triples", 3)):
        for kind in MARKS:
            counts = (
                sum(k == kind for f, (k, _) in run["cells"].items() if len(f.split()) == size)
                for run in runs
            )
            yield (f"{words}: {WORDS[kind]}", *map(str, counts))


def rows(cells: dict[str, tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """A row for each feature, with a mark for each feature before it."""
    for row, name in enumerate(IDS):
        marks = [MARKS[cells[f"{other} {name}"][0]] for other in IDS[:row]]
        yield (f"{row + 1} {name}", *marks, *[""] * (len(IDS) - row))


def table(head: list[str], lines: Iterable[tuple[str, ...]]) -> list[str]:
    """A table in Markdown."""
    rule = "|" + "---|" * len(head)
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)]


GAPS = {GAP, UNFIT}
WORDS = {
    DRIVEN: "accepted and driven (`+`)",
    GAP: "accepted, and refused by kvproof: a gap (`G`)",
    UNFIT: "kvproof cannot express it: a gap (`U`)",
    REFUSED: "refused by vLLM (`-`)",
    OFF: "vLLM accepts the settings and switches one of the features off (`o`)",
    ABSENT: "a feature that this vLLM has not (`a`)",
    NONE: "no cluster has them together (`.`)",
}
HOW = """
Each pair of features, and triples by sampling, in random clusters that have few other features, and
in presets. The clusters are built without the refusals of kvproof. vLLM accepts a cluster if the
configs and the schedulers can be built and the first requests end, without a load for which they
wait for ever. kvproof drives it if [features.md](../docs/reference/features.md) does not refuse it.
A combination counts as driven if some cluster with it is. What NIXL's worker accepts at a handshake
is not part of this. Made by `benchmarks/combinations.py`.
"""


def main() -> None:
    """Run a process for each vLLM, one after the other, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", action="append", metavar="WHICH")
    parser.add_argument("--alone", action="store_true", help="print the cells of one vLLM")
    args = parser.parse_args()
    trees = args.vllm or [None]
    if args.alone:
        print(json.dumps(one(trees[0])))
        return
    outputs = []
    for tree in trees:
        which = ["--vllm", tree] if tree else []
        command = [sys.executable, __file__, "--alone", *which]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        outputs.append(json.loads(done.stdout.splitlines()[-1]))
    print(page(outputs))


if __name__ == "__main__":
    main()
