"""Random plans of an engine's loop: an engine of given sizes, and messages of its clients."""

from random import Random
from typing import Literal

from msgspec.structs import replace

from kvproof.model.plans.engine import EnginePlan, given
from kvproof.model.plans.messages import (
    LENGTH,
    Action,
    Arrive,
    Cancel,
    Compile,
    Pause,
    Reset,
    Resume,
    Send,
    Sleep,
    Stop,
    Wake,
)

STRUCTURED = 0.3
"""The share of plans with requests that ask for structured output."""

Actions = tuple[Action, ...]


def random_loop(seed: int) -> EnginePlan:
    """The plan of a loop of this seed. Most plans have few features and a few requests."""
    r = Random(seed)
    connected = r.random() < 0.5
    overlaps = r.random() < 0.5
    actions = random_messages(r, LENGTH, connected=connected)
    block, more = r.choice((2, 4, 4)), r.choice((0, 0, 2, 8, 30))
    window, chunk_tokens = r.choice((0, 0, 0, 5)), r.choice((4, 8, 16, 32))
    stages = 2 if not (connected or overlaps) and r.random() < 0.25 else 1
    prefix_caching = r.random() < 0.8
    recompute = connected and r.random() < 0.3
    if r.random() < STRUCTURED:
        actions = structured(r, actions)
    if connected and not overlaps and r.random() < 0.25:
        stages = 2
    drafts = r.choice((1, 2)) if stages == 1 and r.random() < 0.25 else 0
    asks = any(isinstance(each, Send) and each.grammar for each in actions)
    if asks and r.random() >= 0.5:
        actions = _thinking(r, actions)
        drafts = drafts or r.choice((0, 1, 2)) * (stages == 1)
    return given(
        sleeping(r, actions),
        block,
        more=more,
        window=window,
        stages=stages,
        fitted=r.random() < 0.2,
        drafts=drafts,
        chunk_tokens=chunk_tokens,
        overlaps=overlaps,
        prefix_caching=prefix_caching,
        connected=connected,
        recompute=recompute,
    )


def random_messages(r: Random, length: int, *, connected: bool = False) -> Actions:
    """Messages of clients. A request has at most `length` tokens; a `connected` engine transfers
    KV."""
    actions: list[Action] = []
    names: list[str] = []
    pauses, paused, ends = r.random() < 0.5, False, r.random() < 0.15
    for _ in range(r.randint(2, 12)):
        after = r.choice((0, 0, 1, 1, 2, 3, 5, 8))
        what = r.choice(("send", "send", "send", "cancel", "arrive", "pause", "resume", "reset"))
        if what in ("cancel", "arrive") and names:
            name = r.choice(names[-3:])
            if what == "cancel" and r.random() < 0.5:
                actions.append(Cancel(after, name))
            elif connected:
                actions.append(Arrive(after, name, r.random() < 0.2))
        elif what == "pause" and pauses:
            mode = r.choice(("abort", "wait", "keep"))
            actions.append(Pause(after, mode, r.random() < 0.5))  # type: ignore[arg-type]
            paused = True
        elif what == "resume" and paused:
            actions.append(Resume(after))
            paused = False
        elif what == "reset" and r.random() < 0.4:
            actions.append(Reset(after, r.random() < 0.5))
        else:
            names.append(f"r{len(names)}")
            answer = min(r.choice((1, 1, 2, 3, 5)), length - 1)
            role = r.choice(("alone", "prefill", "decode", "decode")) if connected else "alone"
            total = r.randint(1, length - answer)
            shared = r.choice((0, total // 2, total))
            actions.append(
                Send(
                    after,
                    names[-1],
                    shared,
                    total - shared,
                    1 if role == "prefill" else answer,
                    role,  # type: ignore[arg-type]
                    refused=connected and r.random() < 0.2,
                )
            )
    if ends:
        place = r.randint(len(actions) // 2, len(actions))
        actions.insert(place, Stop(r.randint(0, 4), r.random() < 0.5))
    return tuple(actions)


def sleeping(r: Random, plain: Actions) -> Actions:
    """The actions with some pauses replaced by sleep. Memory often comes back in parts, with
    requests in between."""
    if r.random() < 0.5:
        return plain
    actions: list[Action] = []
    parts: list[Literal["weights", "kv_cache"]] = ["weights", "kv_cache"]
    for action in plain:
        match action:
            case Pause(after=after, mode=mode):
                actions.append(Sleep(after, mode, r.choice((0, 1, 1, 2))))
                if r.random() < 0.5:
                    actions.append(Wake(r.choice((3, 8)), r.choice(parts)))
            case Resume(after=after):
                actions.append(Wake(after))
            case _:
                actions.append(action)
    return tuple(actions)


def structured(r: Random, plain: Actions) -> Actions:
    """The actions with some requests that ask for structured output."""
    actions: list[Action] = []
    late: list[str] = []
    for action in plain:
        if isinstance(action, Send) and not action.refused and r.random() < 0.6:
            grammar = r.choice(("compiles", "compiles", "compiles", "late", "late", "fails late"))
            if r.random() < 0.2:
                grammar = r.choice(("fails", "rejects"))
            action = replace(action, grammar=grammar)
            late += [action.request] * grammar.endswith("late")
        actions.append(action)
        if late and r.random() < 0.4:
            actions.append(Compile(r.choice((0, 1, 2, 3)), late.pop(r.randrange(len(late)))))
    return tuple(actions)


def _thinking(r: Random, plain: Actions) -> Actions:
    """The actions in which all requests with a grammar think first."""
    actions: list[Action] = []
    for action in plain:
        if isinstance(action, Send) and action.grammar:
            thinks = r.choice((1, 2, 3, 4))
            room = LENGTH - len(action.tokens) if action.role != "prefill" else 1
            answer = max(min(thinks + r.choice((1, 2, 4)), room), 1)
            action = replace(action, thinks=thinks, answer=answer)
        actions.append(action)
    return tuple(actions)
