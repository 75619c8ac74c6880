"""The table of combinations of features: what vLLM accepts, and what kvproof drives.

    python benchmarks/combinations.py --vllm PATH --vllm PATH > reports/combinations.md

Each vLLM has a process. For each pair of features, and for sampled triples, random clusters that
use them are built without the refusals of kvproof. vLLM accepts a cluster if its config and its
schedulers can be built and the first requests are scheduled. kvproof drives it if the table of
features does not refuse it and the adapter can run it.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from random import Random
from typing import Any

from kvproof.model.config import Cluster, Engine
from kvproof.model.config.features.registry import FEATURES, refuse
from kvproof.model.errors import AdapterDrift, NotAllowed, NotValid, UsageError
from kvproof.model.events import Complete, Schedule, Submit, TransferDone
from kvproof.model.presets.random_clusters import clusters_with

CLUSTERS = 4
"""Clusters for each combination."""
STEPS = 12
"""Events of one cluster at most."""
SEED = 28
TRIPLES = 400
ALWAYS = {"chunked_prefill"}
"""Features that every cluster uses."""
IDS = [f for f in FEATURES if f not in ALWAYS]

DRIVEN, REFUSED, GAP, UNFIT, ABSENT = "driven", "refused", "gap", "unfit", "absent"
MARKS = {"driven": "+", "partly": "o", "gap": "G", "refused": "-", "absent": "a", "none": "."}


@contextmanager
def unchecked() -> Iterator[None]:
    """Engines and clusters are not checked against the table of features."""
    before = Engine.checks, Cluster.checks
    Engine.checks = Cluster.checks = ()
    try:
        yield
    finally:
        Engine.checks, Cluster.checks = before


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

    return isinstance(error, Exception) and not blame.caused_by_us(error)


def line(error: BaseException) -> str:
    """The first words of an error, on one line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}"[:160].replace("|", "/")


def first_steps(cluster: Cluster) -> str:
    """Run the first requests on live vLLM. Returns why an engine died; empty if none did."""
    from kvproof.live.machine import LiveMachine

    machine = LiveMachine(cluster)
    try:
        for _ in range(STEPS):
            kinds = (Submit, Complete, TransferDone, Schedule)
            wished = [e for e in machine.stimuli() if isinstance(e, kinds)]
            if not wished:
                break
            machine.take(min(wished, key=lambda e: kinds.index(type(e))))
            dead = next((e.dead for e in machine.state.engines if e.dead), "")
            if dead:
                return str(dead)[:160].replace("|", "/")
    finally:
        machine.close()
    return ""


def combination(features: tuple[str, ...]) -> tuple[str, str]:
    """The cell of these features: what holds for the clusters with them, and the first reason."""
    with unchecked():
        drawn = clusters_with(frozenset(features), CLUSTERS, f"{SEED}:{features}")
    found = [verdict(cluster) for cluster in drawn]
    kinds = Counter(kind for kind, _ in found)
    why = next((w for wanted in (UNFIT, GAP, REFUSED, ABSENT) for k, w in found if k == wanted), "")
    gaps = kinds[GAP] + kinds[UNFIT]
    if not found:
        return "none", "no cluster has them together"
    if gaps:
        return ("partly" if kinds[DRIVEN] else "gap"), why
    return (DRIVEN, "") if kinds[DRIVEN] else (REFUSED if kinds[REFUSED] else ABSENT, why)


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
    lines += ["| | " + " | ".join(run["version"] for run in runs) + " |", "|---|" + "---|" * len(runs)]
    for words, size in (("pairs", 2), ("triples", 3)):
        for kind in MARKS:
            counts = [sum(k == kind and len(f.split()) == size for f, (k, _) in run["cells"].items()) for run in runs]
            lines.append(f"| {words}, {WORDS[kind]} | " + " | ".join(map(str, counts)) + " |")
    for run in runs:
        lines += ["", f"## Pairs on {run['version']}", ""]
        lines += ["| | " + " | ".join(map(str, range(1, len(IDS) + 1))) + " |"]
        lines += ["|---|" + "---|" * len(IDS)]
        for row, name in enumerate(IDS):
            marks = [MARKS[run["cells"][f"{other} {name}"][0]] for other in IDS[:row]]
            marks += [" "] * (len(IDS) - row)
            lines.append(f"| {row + 1} {name} | " + " | ".join(marks) + " |")
        for kinds, title in (({"gap"}, "Gaps"), ({"partly"}, "Driven in part"), ({"refused"}, "Refused by vLLM")):
            lines += ["", f"### {title} on {run['version']}", "", "| features | why |", "|---|---|"]
            lines += [
                f"| {', '.join(f.split())} | {why} |"
                for f, (kind, why) in run["cells"].items()
                if kind in kinds
            ]
    return "\n".join(lines)


WORDS = {
    "driven": "accepted and driven (`+`)",
    "partly": "accepted, driven only in part (`o`)",
    "gap": "accepted and not driven: a gap (`G`)",
    "refused": "refused by vLLM (`-`)",
    "absent": "a feature that this vLLM has not (`a`)",
    "none": "features that exclude each other by what they are (`.`)",
}
HOW = """
Each pair of features, and triples by sampling, in random clusters that have few other features. The
clusters are built without the refusals of kvproof. vLLM accepts a cluster if the configs and the
schedulers can be built and the first requests are scheduled. kvproof drives it if
[features.md](../docs/reference/features.md) does not refuse it. Where only some of the accepted
clusters are driven, the rows below give one of the reasons. What NIXL's worker accepts at a
handshake is not part of this. Made by `benchmarks/combinations.py`.
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
