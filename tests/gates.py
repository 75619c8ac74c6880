"""Results of the gate, made by hand: one for each verdict, and one of hostile texts."""

from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from kvproof.reports.gate_output import (
    Class,
    Gate,
    GateCost,
    GateFinding,
    GateFunction,
    GateLost,
    GatePlace,
    GateRan,
    GateTree,
)

LOST = GateLost(
    feature="push",
    entry="NixlConnectorScheduler.get_transfer_results",
    why="removed by this pull request",
)
BASE = GateTree(
    name="origin/main",
    version="0.33.1.dev4+g4f2c9a1",
    fingerprint="5a0b77c1e2d34f56",
    not_driven=(GateLost(feature="sessions", entry="Request.session_id", why=""),),
    known_findings=("late_end_loses_session", "copied_before_filled"),
    path="cache/trees/5a0b77c1e2d3",
)
HEAD = GateTree(
    name="HEAD",
    version="0.33.1.dev5+gbadc0de",
    fingerprint="c0ffee12e2d34f56",
    not_driven=BASE.not_driven,
    known_findings=BASE.known_findings,
    path="cache/trees/c0ffee12e2d3",
)
PLACE = GatePlace(
    file="vllm/v1/core/sched/scheduler.py", line=812, function="Scheduler._preempt_request"
)
EVENTS: tuple[str, ...] = (
    "Submit(P, r0)",
    "Submit(P, r1)",
    "Schedule(P): Admit(r0, 0, 0), Compute(r0, 10)",
)
EVENTS += tuple(f"Complete(P), round {number}" for number in range(1, 11))
EVENTS += ("Schedule(P): Admit(r1, 0, 0), Compute(r1, 2)",)

INTRODUCED = GateFinding(
    kind="introduced",
    invariant="truncated_at_most_once",
    says="a prompt is truncated at most once, also if its request is preempted",
    origin="vllm#37310",
    severity="wrong tokens",
    signature="truncated_at_most_once after Schedule",
    sentence="r1 was submitted to P with 4 prompt tokens and preempted, yet its prompt has 2 "
    "tokens",
    workload="random episodes of pd-preempting, seed 0",
    cluster="pd-preempting",
    events=EVENTS,
    known=None,
    fails=True,
    places=(PLACE,),
    trace="kvproof-traces/truncated_at_most_once.jsonl",
    reproducer="kvproof-traces/test_truncated_at_most_once.py",
)


def finding(**changes: Any) -> GateFinding:
    """The introduced finding, with changes."""
    return replace(INTRODUCED, **changes)


def lesser(**changes: Any) -> GateFinding:
    """One that fails nothing, and of which nothing is written."""
    unwritten = {"fails": False, "trace": None, "reproducer": None, "events": ()}
    return finding(**unwritten | changes)


LEAK = finding(
    invariant="all_blocks_return",
    says="after all requests end, every block except the null block is free again",
    origin="vllm#12345",
    severity="leak",
    signature="all_blocks_return after Complete, sliding window",
    sentence="all requests of E have ended, yet block 4 is not free",
    cluster="random:97",
    events=EVENTS[:4],
    places=(),
    trace="kvproof-traces/a path.jsonl",
    reproducer=None,
)
COUNTER = lesser(
    invariant="counter_counts_only_cached",
    says="num_cached_blocks counts only blocks that are hashed or that a hit skipped",
    severity="bookkeeping",
    signature="counter_counts_only_cached after Preempt",
    sentence="r0 has 2 hashed blocks, yet num_cached_blocks is 3",
)
STILL = tuple(
    lesser(
        kind="still there",
        invariant=invariant,
        signature=f"{invariant} after Schedule",
        known=known,
        places=(),
    )
    for invariant, known in (
        ("cached_block_holds_its_key", "copied_before_filled"),
        ("every_request_in_one_queue", "late_end_loses_session"),
        ("step_makes_progress", None),
    )
)
MENDED = lesser(
    kind="mended",
    invariant="engine_survives",
    says="an engine survives every event",
    severity="crash",
    signature="engine_survives after Schedule in _apply_prefix_caching",
    known="longer_list_dies_across_ratios",
    places=(),
    events=EVENTS,
)
NOT_COMPARABLE = lesser(
    kind="not comparable",
    invariant="held_goes_beyond_answer",
    signature="held_goes_beyond_answer after Complete",
    known="held_list_ends_with_prompt",
    places=(),
    parting="event 4 of 14, Complete(P): head dies (AssertionError in allocate_slots: 3)",
    events=EVENTS,
)
OFFLOADS = GateFunction(
    function="v1/simple_kv_offload/manager.py:SimpleCPUOffloadScheduler.request_finished",
    part="KV offloading",
    why="lies in v1/*offload*",
)
FUNCTIONS = (
    GateFunction(
        function="config/cache.py:CacheConfig.compute_hash",
        part="used by the accounting",
        why="code that kvproof drives names it",
    ),
    *(
        GateFunction(
            function=f"v1/core/{name}",
            part="the scheduler and the block pool",
            why="lies in v1/core/*",
            runs=runs,
            statements=5,
            not_executed=left,
        )
        for name, runs, left in (
            ("sched/scheduler.py:Scheduler._preempt_request", 9, (812, -815)),
            ("block_pool.py:BlockPool.touch", 38, ()),
        )
    ),
    GateFunction(
        function="engine/arg_utils.py:EngineArgs.add_cli_args",
        part=None,
        why="it is in no part of the accounting, and uses none of it by name",
    ),
)
EXCUSED = lesser(
    kind="costs",
    invariant="room_is_used",
    says="a step schedules each request that it has room for",
    severity="lost performance",
    signature="room_is_used after Schedule, excused: another request was preempted",
    sentence="r1 on E is waiting, and 4 blocks are free, yet the step does not schedule it",
    events=EVENTS,
    excuses=("another request was preempted",),
)
COSTS = (
    GateCost(
        what="tokens hit",
        worse=24,
        better=0,
        runs=500,
        base=12_340,
        head=11_210,
        workload="episodes of full, run 2",
        parts="event 12 of 31, Schedule(E)",
    ),
)
NOT_RUN = tuple(f"workload random:{number}: the budget ended" for number in range(9))

QUIET: dict[str, Any] = {
    "exit_code": 0,
    "verdict": "SAMPLED",
    "seed": 0,
    "seconds": 71.25,
    "budget_s": 300.0,
    "base": BASE,
    "head": HEAD,
    "changed_functions": ("Scheduler._preempt_request", "BlockPool.touch", "BlockPool.get"),
    "reached": ("Scheduler._preempt_request", "BlockPool.touch", "BlockPool.get"),
    "ran": GateRan(traces=64, sampled=200, steps=12_345),
    "findings": (),
    "costs": (),
    "differs": (),
    "lost": (),
    "not_run": (),
}


def gate(**changes: Any) -> Gate:
    """A result in which nothing differs, with changes."""
    return Gate(**QUIET | changes)


NOTHING_RAN: dict[str, Any] = {"reached": (), "ran": GateRan(traces=0, sampled=0, steps=0)}


def unknown(reason: str, **changes: Any) -> Gate:
    return gate(exit_code=3, verdict="UNKNOWN", reason=reason, **changes)


def with_texts(part: Any, text: str) -> Any:
    """A part of a result in which each text is this one, but for those of which the schema knows
    all."""
    if isinstance(part, tuple):
        return tuple(with_texts(each, text) for each in part)
    if isinstance(part, Struct):
        named = {name: getattr(part, name) for name in part.__struct_fields__}
        return type(part)(**{name: with_texts(each, text) for name, each in named.items()})
    fixed = {*get_args(Class), "VIOLATED", "gate"}
    return text if isinstance(part, str) and part not in fixed else part


TRACEBACK = """head cannot be imported
Traceback (most recent call last):
  File "vllm/v1/core/block_pool.py", line 12, in <module>
    from vllm.v1.core.nothing import Nothing
ModuleNotFoundError: No module named 'vllm.v1.core.nothing'"""

HOSTILE = "\x1b[31m::error::\x00\u2028]]>&<script>%0A\r\n##[error]x|`*_[a](b),\udcff\U0001f600"
"""Characters that mean something to a terminal, to XML, to Markdown or to GitHub."""

HUGE = "huge ] ] > " * 1_000

ALL: dict[str, Gate] = {
    "introduced": gate(
        exit_code=1, verdict="VIOLATED", findings=(INTRODUCED, *STILL), costs=COSTS, not_run=NOT_RUN
    ),
    "several": gate(exit_code=1, verdict="VIOLATED", findings=(COUNTER, LEAK, MENDED, INTRODUCED)),
    "tolerated": gate(verdict="VIOLATED", findings=(COUNTER,)),
    "costs": gate(verdict="COSTS", costs=COSTS, findings=(EXCUSED,)),
    "no effect": gate(
        verdict="NO EFFECT",
        ran=GateRan(traces=64, sampled=200, steps=12_345, compared=412),
    ),
    "mended": gate(findings=(MENDED, *STILL)),
    "nothing": gate(),
    "unchanged": gate(
        verdict="UNCHANGED",
        reason="the 2 files that differ have other comments and log lines only",
        changed_functions=(),
        seconds=4.5,
        **NOTHING_RAN,
    ),
    "never ran": unknown(
        "no run executes all that head changes: v1/core/sched/scheduler.py:"
        "Scheduler._preempt_request (line 812, line 815 of base)",
        functions=FUNCTIONS[1:],
        watched=40,
    ),
    "partly": gate(
        reached=("Scheduler._preempt_request", "BlockPool.touch"),
        functions=FUNCTIONS,
        watched=40,
    ),
    "not comparable": gate(findings=(MENDED, NOT_COMPARABLE)),
    "not driven": unknown(
        "head changes accounting that no run of kvproof drives yet: KV offloading (1 function)",
        changed_functions=(OFFLOADS.function,),
        functions=(OFFLOADS, FUNCTIONS[-1]),
        seconds=4.5,
        **NOTHING_RAN,
    ),
    "lost": unknown("head cannot be driven with all that base can be driven with", lost=(LOST,)),
    "not importable": unknown(TRACEBACK, **NOTHING_RAN),
    "hostile": with_texts(
        gate(
            exit_code=1,
            verdict="VIOLATED",
            findings=(finding(known="known"),),
            lost=(LOST,),
            not_run=NOT_RUN,
            functions=FUNCTIONS,
            reason="a reason",
        ),
        HOSTILE,
    ),
    "huge": gate(
        exit_code=1,
        verdict="VIOLATED",
        findings=tuple(
            finding(
                invariant=f"check_{number}",
                signature=f"check_{number} {HUGE}",
                says=HUGE,
                sentence=HUGE,
                events=(HUGE,) * 40,
            )
            for number in range(25)
        ),
        not_run=(HUGE,) * 500,
    ),
}
"""One result for each verdict and each trouble, by name."""
