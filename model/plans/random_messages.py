"""Random messages of clients to the loop of an engine."""

from random import Random
from typing import Any, Literal

from msgspec.structs import replace

from kvproof.model.plans.drawing import drawn
from kvproof.model.plans.messages import (
    Action,
    Arrive,
    Cancel,
    Compile,
    Grammar,
    Pause,
    Reset,
    Resume,
    Send,
    Sleep,
    Stop,
    Wake,
)

PARAMETERS: dict[str, tuple[Any, ...]] = {
    "number": (*range(2, 13),),
    "pauses": ("", "", "pause", "sleep"),
    "structured": (True, False, False),
    "thinks": (True, False),
    "ends": (True, *(False,) * 6),
}
"""What messages have in common, with the values that are equally likely: how many come, how the
engine pauses, whether requests ask for structured output and then reason first, and whether the
engine is told to end."""

AFTER = 0, 0, 1, 1, 2, 3, 5, 8

WHAT = "send", "send", "send", "cancel", "arrive", "pause", "resume", "reset"

GRAMMARS: tuple[Grammar, ...] = (
    *("compiles",) * 6,
    *("late",) * 4,
    *("fails late",) * 2,
    "fails",
    "rejects",
)

PARTS: tuple[Literal["weights", "kv_cache"], ...] = "weights", "kv_cache"


def random_messages(r: Random, length: int, *, connected: bool = False) -> tuple[Action, ...]:
    """Messages of clients. A request has at most `length` tokens; a `connected` engine transfers
    KV."""
    of_plan = drawn(r, PARAMETERS)
    actions: list[Action] = []
    names: list[str] = []
    late: list[str] = []
    paused = False
    for _ in range(of_plan.number):
        after, what = r.choice(AFTER), r.choice(WHAT)
        if what == "cancel" and names and r.random() < 0.5:
            actions.append(Cancel(after, r.choice(names[-3:])))
        elif what in ("cancel", "arrive") and names:
            if connected:
                actions.append(Arrive(after, r.choice(names[-3:]), r.random() < 0.2))
        elif what == "pause" and of_plan.pauses:
            actions += _pause(r, after, sleeps=of_plan.pauses == "sleep")
            paused = True
        elif what == "resume" and paused:
            actions.append(Wake(after) if of_plan.pauses == "sleep" else Resume(after))
            paused = False
        elif what == "reset" and r.random() < 0.4:
            actions.append(Reset(after, r.random() < 0.5))
        else:
            names.append(f"r{len(names)}")
            one = _send(r, after, names[-1], length, connected)
            if of_plan.structured and not one.refused and r.random() < 0.6:
                one = _structured(r, one, length, thinks=of_plan.thinks)
                late += [one.request] * one.grammar.endswith("late")
            actions.append(one)
        if late and r.random() < 0.4:
            actions.append(Compile(r.choice((0, 1, 2, 3)), late.pop(r.randrange(len(late)))))
    if of_plan.ends:
        place = r.randint(len(actions) // 2, len(actions))
        actions.insert(place, Stop(r.randint(0, 4), r.random() < 0.5))
    return tuple(actions)


def _send(r: Random, after: int, name: str, length: int, connected: bool) -> Send:
    """A request of at most `length` tokens."""
    role: Literal["alone", "prefill", "decode"] = "alone"
    if connected:
        role = r.choice(("alone", "prefill", "decode", "decode"))
    answer = min(r.choice((1, 1, 2, 3, 5)), length - 1)
    total = r.randint(1, length - answer)
    shared = r.choice((0, total // 2, total))
    return Send(
        after,
        name,
        shared,
        total - shared,
        1 if role == "prefill" else answer,
        role,
        refused=connected and r.random() < 0.2,
    )


def _structured(r: Random, one: Send, length: int, *, thinks: bool) -> Send:
    """The request with a grammar, and with reasoning before it if it thinks."""
    asking = replace(one, grammar=r.choice(GRAMMARS))
    if not thinks:
        return asking
    number = r.choice((1, 2, 3, 4))
    room = length - len(one.tokens) if one.role != "prefill" else 1
    return replace(asking, thinks=number, answer=max(min(number + r.choice((1, 2, 4)), room), 1))


def _pause(r: Random, after: int, *, sleeps: bool) -> list[Action]:
    """A pause, or sleep, after which memory often comes back in parts, with requests in between."""
    mode: Literal["abort", "wait", "keep"] = r.choice(("abort", "wait", "keep"))
    if not sleeps:
        return [Pause(after, mode, r.random() < 0.5)]
    part = [Wake(r.choice((3, 8)), r.choice(PARTS))] * (r.random() < 0.5)
    return [Sleep(after, mode, r.choice((0, 1, 1, 2))), *part]
