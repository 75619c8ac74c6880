"""What real engines are given to do, and what is compared with and without the sanitizer."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine.process import Answer, Process

DRAFTS = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 2,
}
STORE = {
    "kv_connector": "FailingStore",
    "kv_connector_module_path": "tests.engine.failing_store",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}


def tokens(seed: int, count: int) -> list[int]:
    """Random tokens."""
    chooses = random.Random(seed)
    return [chooses.randrange(3, 500) for _ in range(count)]


LONG = tokens(0, 130)
FIRST = LONG + tokens(1, 60)


def add(name: str, prompt: list[int], answer: int, **options: Any) -> list[Any]:
    """A request with an answer of so many tokens."""
    return ["add", name, prompt, {"max_tokens": answer, **options}]


ORDINARY: list[list[Any]] = [
    # Four requests share a prefix, and the pool is too small for them.
    add("a", FIRST, 40),
    add("b", LONG + tokens(2, 20), 40),
    add("c", tokens(3, 100), 40),
    add("d", LONG[:64] + tokens(4, 30), 40),
    ["run"],
    ["preempted"],
    # The first prompt comes again and is aborted; the cache cannot be reset beside a request.
    add("e", FIRST, 40),
    add("f", tokens(5, 70), 60),
    ["until", "e", 3],
    ["abort", "e"],
    ["reset"],
    ["run"],
    # It is reset, and the first prompt is computed again; and then beside running requests.
    ["reset"],
    add("g", FIRST, 8),
    add("h", tokens(6, 90), 20),
    ["until", "g", 4],
    ["reset", "running"],
    ["run"],
    # A prompt that repeats itself.
    add("i", tokens(7, 9) * 12, 30),
    ["run"],
]
LOADING: list[list[Any]] = [
    # What was saved is loaded, then fails to be loaded and is computed, then is loaded.
    add("saved", FIRST, 8),
    ["run"],
    ["reset"],
    add("loaded", FIRST, 8),
    ["run"],
    ["reset"],
    ["call", "tests.engine.failing_store:fail", True],
    add("failed", FIRST, 8),
    ["run"],
    ["reset"],
    ["call", "tests.engine.failing_store:fail", False],
    add("again", FIRST, 8),
    ["run"],
]


ORDINARY_KINDS = frozenset({"full", "window", "mamba", "drafts"})

RARE: dict[str, frozenset[str]] = {
    "engine_survives": frozenset(),  # it is judged when an exception is raised
    "step_makes_progress": frozenset(),  # when a step schedules nothing
    "settled_frees": frozenset(),  # when a worker may still write to blocks that are freed
    "nothing_reused_under_transfer": frozenset(),  # when D loads from P
    "offer_has_tokens": frozenset(),  # when P offers to D
    "no_token_of_a_failed_load": frozenset({"store"}),
    "repeated_prompt_hits": ORDINARY_KINDS,
    "writer_is_alone": frozenset({"full"}),  # when a cached or shared block is written to
    "no_more_is_held_than_is_read": frozenset({"window", "mamba"}),
    "state_read_is_state_at_computed": frozenset({"mamba"}),
    "events_replay_to_the_cache": frozenset(),  # when KV events are on
    "events_carry_their_tokens": frozenset(),
    "new_blocks_are_zeroed": frozenset({"mamba"}),
    "zeroed_blocks_are_new": frozenset({"mamba"}),
    "placeholders_are_samples_in_flight": frozenset(),  # vLLM lets no steps overlap on the CPU
    "priority_is_kept": frozenset({"window"}),
    "watermark_is_kept": frozenset({"store"}),
    "entry_is_lost_with_its_block": frozenset(),  # when a cached block is taken
}
"""The kinds of engines on which a check must have something to judge, where it is not all."""


@dataclass(frozen=True)
class Kind:
    """A kind of engine. `ways` is whether it schedules asynchronously: there is one engine each."""

    model: str
    options: dict[str, Any]
    ways: tuple[bool, ...] = (True,)
    work: Sequence[list[Any]] = tuple(ORDINARY)


KINDS = {
    "full": Kind("full", {"num_gpu_blocks_override": 13}, ways=(True, False)),
    "window": Kind("window", {"num_gpu_blocks_override": 25, "scheduling_policy": "priority"}),
    "mamba": Kind("mamba", {"num_gpu_blocks_override": 24, "mamba_cache_mode": "align"}),
    "store": Kind(
        "full",
        {"num_gpu_blocks_override": 13, "watermark": 0.1, "kv_transfer_config": STORE},
        ways=(False,),
        work=tuple(LOADING),  # this connector loses the prompts that take several steps
    ),
    # The last: once numba is there, a further engine in the process does not start (0.32.0).
    "drafts": Kind(
        "full", {"num_gpu_blocks_override": 13, "speculative_config": DRAFTS}, ways=(False,)
    ),
}


def name_of(kind: str, asynchronous: bool) -> str:
    """The name of an engine."""
    return kind + " async" * asynchronous


@dataclass(frozen=True)
class Served:
    """What one engine answered. `judged` is how often the sanitizer judged each invariant."""

    answer: Answer
    judged: dict[str, int]


def serve(
    options: dict[str, Any],
    mode: str | None,
    models: Path,
    scratch: Path,
    inherited: Mapping[str, str] | None = None,
) -> tuple[dict[str, Served], Process]:
    """Let an engine of each kind serve its work, one after the other in a process with this mode of
    the sanitizer, which inherits this environment."""
    served: dict[str, Served] = {}
    store = STORE | {"kv_connector_extra_config": {"shared_storage_path": str(scratch)}}
    with Process(models, mode=mode, inherited=inherited) as process:
        for name, kind in KINDS.items():
            chosen = options | kind.options
            if "kv_transfer_config" in chosen:
                chosen["kv_transfer_config"] = store
            for asynchronous in kind.ways:
                build = ["engine", kind.model, chosen | {"async_scheduling": asynchronous}]
                process.served(build)
                answer = process.take(*kind.work)
                judged = process.take(["call", "tests.engine.asked:asked"]).results[0]
                served[name_of(name, asynchronous)] = Served(answer, judged)
    return served, process
