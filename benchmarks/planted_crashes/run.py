"""What the gate says of base's findings where head dies early: "mended" must bear a replay on head.

    python benchmarks/planted_crashes/run.py --results FOLDER [--only NAME ...] [--budget SECONDS]

Each row of CRASHES is a copy of the installed vLLM in which one function raises when it is called
for the N-th time. It is head, and the installed vLLM is base. The gate's search and its comparison
are run as `kvproof gate` runs them, on the traces of past findings, in which base breaks most; the
runs of the model's faults, shrinking and writing are left out. Each run of base that
the gate calls mended is then replayed by `kvproof replay`, which has its own way to follow a trace:
base must show the finding, and head must take every event and not show it. The table is printed as
Markdown. Exit code: 0 no false "mended", 1 some, 2 bad usage.
"""

import argparse
import ast
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.gate.difference.judged import Break
from kvproof.gate.search import judge, workloads
from kvproof.gate.search.outcome import GateOutcome
from kvproof.gate.source.changes import changed
from kvproof.live.trees import Tree, named
from kvproof.live.trees.files import files
from kvproof.model import interruption
from kvproof.model.severity import Severity
from kvproof.model.traces.trace import Trace, write_in

BUDGET_S = 240

CORE = "v1/core/"
NIXL = "distributed/kv_transfer/kv_connector/v1/nixl/"


class Crash(NamedTuple):
    """A function of a file of vLLM that raises at a call; calls count from 1."""

    file: str
    function: str
    call: int

    @property
    def name(self) -> str:
        return f"{self.function}-{self.call}"


CRASHES = (
    Crash(f"{CORE}sched/scheduler.py", "Scheduler.add_request", 2),
    Crash(f"{CORE}sched/scheduler.py", "Scheduler.schedule", 2),
    Crash(f"{CORE}sched/scheduler.py", "Scheduler.schedule", 5),
    Crash(f"{CORE}sched/scheduler.py", "Scheduler.update_from_output", 3),
    Crash(f"{CORE}sched/scheduler.py", "Scheduler._free_request", 4),
    Crash(f"{CORE}sched/scheduler.py", "Scheduler._preempt_request", 1),
    Crash(f"{CORE}sched/scheduler.py", "Scheduler._connector_finished", 4),
    Crash(f"{CORE}block_pool.py", "BlockPool.get_new_blocks", 3),
    Crash(f"{CORE}block_pool.py", "BlockPool.touch", 1),
    Crash(f"{CORE}block_pool.py", "BlockPool.free_blocks", 2),
    Crash(f"{CORE}block_pool.py", "BlockPool.evict_blocks", 1),
    Crash(f"{CORE}kv_cache_manager.py", "KVCacheManager.allocate_slots", 4),
    Crash(f"{CORE}kv_cache_manager.py", "KVCacheManager.get_computed_blocks", 2),
    Crash(f"{CORE}kv_cache_coordinator.py", "KVCacheCoordinator.cache_blocks", 2),
    Crash(f"{CORE}kv_cache_coordinator.py", "HybridKVCacheCoordinator.find_longest_cache_hit", 2),
    Crash(
        f"{CORE}single_type_kv_cache_manager.py", "SingleTypeKVCacheManager.allocate_new_blocks", 5
    ),
    Crash(f"{CORE}single_type_kv_cache_manager.py", "MambaManager.get_num_blocks_to_allocate", 3),
    Crash(
        f"{CORE}single_type_kv_cache_manager.py", "SlidingWindowManager.find_longest_cache_hit", 1
    ),
    Crash(f"{NIXL}base_scheduler.py", "NixlBaseConnectorScheduler.build_connector_meta", 6),
    Crash(f"{NIXL}pull_scheduler.py", "NixlPullConnectorScheduler.update_state_after_alloc", 2),
)


def planted(crash: Crash, base: Tree, folder: Path) -> Path:
    """A copy of base's Python files with the crash."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, path in files(base.package):
        if name.endswith(".py"):
            copy = folder / "vllm" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    path = folder / "vllm" / crash.file
    text = path.read_text(encoding="utf-8")
    body = _body(ast.parse(text), crash.function)
    first = body[1] if isinstance(body[0], ast.Expr) and len(body) > 1 else body[0]
    indent = " " * first.col_offset
    lines = text.split("\n")
    lines[first.lineno - 1 : first.lineno - 1] = [
        f"{indent}_CALLS.append(1)",
        f"{indent}if len(_CALLS) == {crash.call}:",
        f'{indent}    raise RuntimeError("planted")',
    ]
    path.write_text("\n".join([*lines, "_CALLS: list[int] = []", ""]), encoding="utf-8")
    return folder


def _body(module: ast.Module, function: str) -> list[ast.stmt]:
    body = module.body
    for name in function.split("."):
        [found] = [each for each in body if getattr(each, "name", "") == name]
        body = found.body  # type: ignore[attr-defined]
    return body


def gate(base: Tree, head: Tree, budget: int, folder: Path) -> GateOutcome:
    """The gate on both, without shrinking and writing."""
    args = argparse.Namespace(
        seed=0, budget=budget, fail_on=Severity.LOST_PERFORMANCE, traces=folder, cache=None
    )
    changes = changed(base.package, head.package)
    return judge.judged(args, (base, head), changes, time.monotonic())


def borne_out(found: Break, head: Path, folder: Path) -> str:
    """Empty where replays bear out that a finding of base is mended on head, else what they say."""
    trace = Trace(cluster=found.cluster, events=found.events, finding=found.finding, machine="live")
    path = write_in(folder, found.signature.check, trace)
    on_base, on_head = _replayed(path), _replayed(path, "--vllm", str(head))
    if on_base["exit_code"] != 1:
        return f"base does not show it at replay ({on_base['verdict']})"
    taken = on_head.get("steps", 0)
    if on_head["exit_code"] != 0 or taken < len(found.events):
        return f"head takes {taken} of {len(found.events)} events ({on_head['verdict']})"
    return ""


def _replayed(path: Path, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "kvproof", "replay", str(path), "--json", *more]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer | {"exit_code": ran.returncode}


def judged(crash: Crash, base: Tree, args: argparse.Namespace) -> dict[str, Any]:
    """The result of one crash, kept in the folder of results."""
    out: Path = args.results / f"{crash.name}.json"
    if out.exists():
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return result
    folder = planted(crash, base, args.results / "head")
    begin = time.monotonic()
    found = gate(base, named(str(folder), None), args.budget, args.results / "traces")
    interruption.check()
    seconds = time.monotonic() - begin
    traces = args.results / "traces" / crash.name
    mended = [one.found for kind, one in found.of_base if kind == "mended"]
    result = {
        "crash": f"{crash.function}, call {crash.call}",
        "seconds": round(seconds),
        "introduced": sorted(
            {one.found.death or one.found.key.words for one, _ in found.introduced}
        ),
        "of base": dict(Counter(kind for kind, _ in found.of_base)),
        "still there": len(found.comparison.still_there()) if found.comparison else 0,
        "mended": [each.key.words for each in mended],
        "not borne out": [
            f"{each.key.words}: {why}"
            for each in mended
            if (why := borne_out(each, folder, traces))
        ],
        "partings": sorted({one.parting for _, one in found.of_base if one.parting})[:5],
        "reason": found.reason,
    }
    out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def row(result: dict[str, Any]) -> str:
    """A row of the table."""
    kinds = result["of base"]
    introduced = ", ".join(f"`{each}`" for each in result["introduced"][:2])
    cells = (
        result["crash"],
        introduced or result["reason"],
        kinds.get("mended", 0),
        len(result["not borne out"]),
        kinds.get("not comparable", 0),
        result["still there"],
        result["seconds"],
    )
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Judge all crashes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="the folder for the results")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--budget", type=int, default=BUDGET_S, help="of each gate, in seconds")
    args = parser.parse_args()
    args.results = args.results.absolute()
    args.results.mkdir(parents=True, exist_ok=True)
    judge.WRITTEN_MAX = 0
    workloads.of_faults = list
    base = named(None, None)
    print(
        "| crash | introduced | mended | not borne out | not comparable | still there | s |",
        flush=True,
    )
    print("|---|---|---|---|---|---|---|")
    false = 0
    with interruption.handled():
        for crash in CRASHES:
            if not args.only or crash.name in args.only:
                result = judged(crash, base, args)
                false += len(result["not borne out"])
                print(row(result), flush=True)
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
