"""The share of random plans in which a situation comes up, for connectors and for loops of engines.

    python -m benchmarks.situations [--plans 300] [--seed 0] [--keep FILE] [NAME ...]

Each name is a connector of the kit, or `engines`. A row is a situation that defects of vLLM needed.
A plan is only drawn, and not played, so a table takes seconds. With `--keep`, the table of a name
is kept in this file, and is not made again. The last rows say how many of the first 100 plans
differ in engine and traffic, and how long a plan takes to draw.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.kept import Answers

NAMES = "offloading", "simple-cpu", "mooncake-store", "nixl-pull", "engines"
ALIKE = 100
"""Of so many plans the different ones are counted."""


@dataclass(frozen=True)
class Request:
    """A request of a plan. `step` counts what came before it and let the engine work. Its model may
    give fewer tokens than its `answer` may have."""

    prompt: tuple[Any, ...]
    answer: int
    step: int
    priority: int = 0
    extends: bool = False
    stops: bool = False


@dataclass(frozen=True)
class Seen:
    """What a plan has: its cache groups, each as its kind, the tokens of a block, and its window;
    its `features`, the number of blocks beyond what its largest request needs, and the names of its
    actions in order."""

    groups: tuple[tuple[str, int, int], ...]
    features: frozenset[str]
    room: int | None
    chunk: int
    requests: tuple[Request, ...]
    actions: tuple[str, ...]

    @property
    def block(self) -> int:
        """The largest block, in tokens."""
        return max(size for _, size, _ in self.groups)

    def parting(self, tails: int = 1) -> Iterator[int]:
        """Where two requests part whose tails have at least so many tokens."""
        for one, other in combinations((each.prompt for each in self.requests), 2):
            at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            if at and min(len(one), len(other)) - at >= tails:
                yield at

    def bursts(self) -> Iterator[list[Request]]:
        """The requests that arrive before the same step."""
        for step in {each.step for each in self.requests}:
            yield [each for each in self.requests if each.step == step]


def siblings(requests: Sequence[Request], number: int, tails: int = 1) -> bool:
    """Whether so many requests share a beginning and then differ, with tails of so many tokens."""
    for first in requests:
        trunk = first.prompt[:1]
        alike = {each.prompt for each in requests if each.prompt[:1] == trunk}
        if len(alike) < number:
            continue
        for chosen in combinations(sorted(alike, key=str)[:8], number):
            at = next(
                (n for n, tokens in enumerate(zip(*chosen, strict=False)) if len({*tokens}) > 1),
                None,
            )
            if at is not None and min(map(len, chosen)) - at >= tails:
                return True
    return False


def follows(seen: Seen, first: str, *then: str) -> bool:
    """Whether these actions come one after the other."""
    names = (first, *then)
    return any(seen.actions[n : n + len(names)] == names for n in range(len(seen.actions)))


def windows(seen: Seen) -> list[int]:
    return [window for _, _, window in seen.groups if window]


def unlike(seen: Seen) -> bool:
    """Whether two groups of a kind differ."""
    return any(a[0] == b[0] and a != b for a, b in combinations(seen.groups, 2))


SITUATIONS: dict[str, Callable[[Seen], bool]] = {
    "a drafter beside sparse retention": lambda s: {"drafter", "retention"} <= s.features,
    "a tier beside events that carry tokens": lambda s: {"tier", "events"} <= s.features,
    "two groups of one kind differ": unlike,
    "blocks of two sizes": lambda s: len({size for _, size, _ in s.groups}) > 1,
    "prompts part inside a block": lambda s: any(at % s.block for at in s.parting()),
    "prompts part at the edge of a block": lambda s: any(at % s.block == 0 for at in s.parting()),
    "prompts part at the edge of a window": lambda s: any(
        at in (w - 1, w, w + 1) for at in s.parting() for w in windows(s)
    ),
    "tails are longer than a window": lambda s: any(
        True for w in windows(s) for _ in s.parting(w + 1)
    ),
    "three siblings": lambda s: siblings(s.requests, 3),
    "three siblings with tails longer than a window": lambda s: any(
        siblings(s.requests, 3, w + 1) for w in windows(s)
    ),
    "three requests before one step": lambda s: any(len(b) >= 3 for b in s.bursts()),
    "three siblings before one step": lambda s: any(siblings(b, 3) for b in s.bursts()),
    "three equal prompts before one step": lambda s: any(
        len(b) - len({r.prompt for r in b}) >= 2 for b in s.bursts()
    ),
    "equal prompts are loaded before one step": lambda s: any(
        len(b) - len({r.prompt for r in b}) >= 1
        and any(r.prompt == e.prompt for r in b for e in s.requests if e.step < r.step)
        for b in s.bursts()
    ),
    "a prompt of whole blocks comes again": lambda s: any(
        a.prompt == b.prompt and len(a.prompt) % s.block == 0
        for a, b in combinations(s.requests, 2)
    ),
    "a prompt goes on after an answer": lambda s: any(r.extends for r in s.requests),
    "a long prompt, then its beginning": lambda s: any(
        len(b.prompt) < len(a.prompt) and a.prompt[: len(b.prompt)] == b.prompt
        for a, b in combinations(s.requests, 2)
    ),
    "an answer is longer than a block": lambda s: any(
        r.answer > min(size for _, size, _ in s.groups) for r in s.requests
    ),
    "the smallest pool that serves the largest request": lambda s: s.room == 0,
    "a pool of one to three blocks more": lambda s: s.room in (1, 2, 3),
    "that pool, and equal prompts before one step": lambda s: (
        s.room in (0, 1, 2, 3) and any(len(b) > len({r.prompt for r in b}) for b in s.bursts())
    ),
    "urgent after patient": lambda s: any(
        b.priority < a.priority for a, b in combinations(s.requests, 2)
    ),
    "run to idle under a pause": lambda s: follows(s, "Pause", "Idle"),
    "an abort at once after a request": lambda s: follows(s, "Submit", "AbortRequest"),
    "a reset at once after a request": lambda s: follows(s, "Submit", "Reset"),
    "a reset one step after a request": lambda s: follows(s, "Submit", "Step", "Reset"),
    "a step ends one token beside a block's edge": lambda s: s.chunk % s.block in (1, s.block - 1),
    "a step ends at a block's edge": lambda s: s.chunk % s.block == 0,
    "three or four drafts": lambda s: "many drafts" in s.features,
    "some drafts are wrong": lambda s: "wrong drafts" in s.features,
    "a model ends its answer": lambda s: any(r.stops for r in s.requests),
    "a model ends its answer, and drafts": lambda s: (
        "drafter" in s.features and any(r.stops for r in s.requests)
    ),
    "a model ends its answer, and steps overlap": lambda s: (
        "overlap" in s.features and any(r.stops for r in s.requests)
    ),
    "urgent after patient, and few requests a step": lambda s: (
        "few requests" in s.features
        and any(b.priority < a.priority for a, b in combinations(s.requests, 2))
    ),
    "a model that pools, and a prompt of all tokens in chunks": lambda s: (
        "pools, a prompt of all tokens" in s.features
        and s.chunk < max(len(r.prompt) for r in s.requests)
    ),
}
"""By their names: whether a plan has it."""


def of_connector(name: str, plan: Any) -> Seen:
    """What a plan for a connector has."""
    from kvproof.model.plans.connector import SubmitRequest

    engine, step = plan.engine, 0
    requests, actions = list[Request](), list[str]()
    for action in plan.actions:
        kind = type(action).__name__
        if isinstance(action, SubmitRequest):
            prompt = (action.beside, *action.prompt)
            patience = getattr(action, "priority", 0)
            requests.append(
                Request(prompt, action.max_tokens, step, patience, extends=action.answer > 0)
            )
            actions.append("Submit")
            continue
        step += kind in ("RunSteps", "Drain", "Restart")
        word = {"RunSteps": "Step", "ResetCache": "Reset", "PauseEngine": "Pause"}.get(kind, kind)
        actions.append("Idle" if kind == "Drain" else word)
    options = {option for option, _ in plan.options}
    has = {
        "drafter": plan.drafts_of_layers,
        "retention": engine.retention is not None,
        "tier": any(part in name for part in ("files", "objects", "kept", "peers")),
        "events": "self_describing_kv_events" in options or name == "offloading-events",
        "many drafts": engine.drafts > 2,
        "wrong drafts": plan.accepted < engine.drafts,
        "overlap": engine.overlaps,
    }
    largest = max((len(r.prompt) - 1 + r.answer for r in requests), default=1)
    return Seen(
        tuple((group.kind, group.block_size, group.window) for group in engine.groups),
        frozenset(what for what, is_so in has.items() if is_so),
        engine.num_blocks - 1 - _needed(engine, largest),
        engine.chunk_tokens,
        tuple(requests),
        tuple(actions),
    )


def _needed(engine: Any, tokens: int) -> int:
    from kvproof.model.capacity import needed_blocks

    return needed_blocks(engine, tokens)


def of_engines(plan: Any) -> Seen:
    """What a plan for the loop of an engine has. What comes at one moment comes before one step."""
    from kvproof.model.plans.messages import Pause, Send

    step = 0
    requests, actions = list[Request](), list[str]()
    for action in plan.actions:
        if action.after:
            step += 1
            actions.append("Step" if action.after < 8 else "Idle")
        if isinstance(action, Send):
            more = action.stays, 0 < action.stops < action.answer
            requests.append(Request((*action.tokens,), action.answer, step, action.priority, *more))
        word = type(action).__name__.replace("Send", "Submit")
        actions.append(word if not isinstance(action, Pause) else "Pause")
    has = {
        "many drafts": plan.drafts > 2,
        "drafter": plan.drafts > 0,
        "wrong drafts": plan.misses > 0,
        "overlap": plan.overlaps,
        "few requests": plan.requests < 3,
        "pools, a prompt of all tokens": plan.pools
        and any(len(r.prompt) >= plan.max_model_len for r in requests),
    }
    return Seen(
        tuple((layer.kind, layer.block, layer.window) for layer in plan.layers),
        frozenset(what for what, is_so in has.items() if is_so),
        plan.blocks if plan.counted_from == "need" else None,
        plan.chunk_tokens,
        tuple(requests),
        tuple(actions),
    )


def drawn(name: str, number: int, seed: int) -> list[Any]:
    """So many random plans of this connector, or of engines."""
    if name == "engines":
        from kvproof.model.plans.random_engines import random_engine

        return [random_engine(seed * 1_000_003 + each) for each in range(number)]
    from kvproof.live.connectors.accepted import NotAccepted, accepted
    from kvproof.live.connectors.drawn import draw_plans
    from kvproof.live.connectors.shipped import SHIPPED

    plans: list[Any] = []
    subject = SHIPPED[name].subject
    draw_plans(subject, accepted(subject, NotAccepted()), number, seed, plans.append)
    return plans


def measured(name: str, number: int, seed: int) -> dict[str, Any]:
    """The share of plans with each situation, in percent of those with messages or requests."""
    began = time.process_time()
    plans = drawn(name, number, seed)
    ms = (time.process_time() - began) / number * 1000
    all_seen = [
        of_engines(each) if name == "engines" else of_connector(name, each) for each in plans
    ]
    seen = [each for each in all_seen if each.requests]
    shares = {
        what: round(100 * sum(map(has, seen)) / len(seen), 1) for what, has in SITUATIONS.items()
    }
    alike = {(each.groups, each.features, each.chunk, each.requests) for each in all_seen[:ALIKE]}
    engines = {repr(getattr(each, "engine", each)) for each in plans[:ALIKE]}
    return {
        **shares,
        f"different engines and traffic of {ALIKE}": len(alike),
        f"different engines of {ALIKE}": len(engines),
        "ms to draw a plan, with what is accepted": round(ms, 1),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME")
    parser.add_argument("--plans", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    args = parser.parse_args()
    kept = Answers(args.keep) if args.keep else None
    tables: dict[str, dict[str, Any]] = {}
    digest = json.dumps([args.plans, args.seed, [*SITUATIONS]])
    for name in args.names:
        known = kept.of(name, digest) if kept else None
        found = known or {"digest": digest, "table": measured(name, args.plans, args.seed)}
        if kept:
            kept.keep(name, found)
        tables[name] = found["table"]
    print("| % of plans | " + " | ".join(tables) + " |")
    print("|---|" + "---:|" * len(tables))
    for what in next(iter(tables.values())):
        print(f"| {what} | " + " | ".join(str(each[what]) for each in tables.values()) + " |")


if __name__ == "__main__":
    main()
