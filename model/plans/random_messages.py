"""Random messages of clients to the loop of an engine."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, TypeGuard

from msgspec.structs import replace

from kvproof.model.plans.messages import (
    ACTIONS_MAX,
    Action,
    Arrive,
    Cancel,
    Compile,
    Grammar,
    More,
    Pause,
    Reset,
    Resume,
    Send,
    Sleep,
    Stop,
    Wake,
)
from kvproof.model.plans.part import drawn

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

EARLY = 0, 0, 0, 1, 1, 2, 5
"""How long the client of a session waits before it sends the next part."""

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
            gone = r.choice(names[-3:])
            both = gone != names[-1] and len(actions) % 2
            actions.append(Cancel(after, gone, (names[-1],) if both else ()))
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


def with_repeats(actions: Sequence[Action], seed: int, length: int) -> tuple[Action, ...]:
    """The messages, of which in half of the plans some repeat an earlier prompt, or its beginning,
    or go on after it. So there are hits, also of states and in windows."""
    r = Random(f"repeats of {seed}")
    if r.random() < 0.5:
        return (*actions,)
    made: list[Action] = []
    for action in actions:
        before = [each for each in made[-6:] if isinstance(each, Send)]
        if isinstance(action, Send) and before and r.random() < 0.6:
            first = r.choice(before)
            room = length - first.shared - action.answer
            own = r.choice((first.own, first.own, first.own + 1, room, first.own // 2))
            if first.shared + action.answer < length:
                name = first.like or first.request
                own = min(own, room)
                action = replace(action, shared=first.shared, own=own, like=name)
        made.append(action)
    return (*made,)


BURSTS = 3
"""Of so many plans, one has a burst of requests."""


def with_burst(
    actions: Sequence[Action], seed: int, length: int, edges: Sequence[int]
) -> tuple[Action, ...]:
    """The messages, with a burst in some plans: behind a request come two to four more at the same
    moment. They have its prompt; or all of them part at one of the `edges` or one token beside,
    with tails of one token, as long as possible, or of any length."""
    r = Random(f"a burst of {seed}")
    plain = [
        at
        for at, each in enumerate(actions)
        if isinstance(each, Send) and not (each.grammar or each.refused or each.like)
    ]
    if not plain or r.randrange(BURSTS):
        return (*actions,)
    at = r.choice(plain)
    first = actions[at]
    assert isinstance(first, Send)
    others = [replace(first, after=0, request=f"b{n}") for n in range(r.choice((2, 3, 4)))]
    burst = [first, *(replace(each, like=first.request) for each in others)]
    if not first.own or r.random() < 0.7:
        room = length - first.answer
        shared = max(min(r.choice(edges) + r.choice((-1, 0, 0, 1)), room - 1), 0)
        tail = r.choice((1, room, None))
        burst = [
            replace(each, shared=shared, own=min(tail or r.randint(1, room), room - shared))
            for each in (first, *others)
        ]
    return (*actions[:at], *burst, *actions[at + 1 :])[:ACTIONS_MAX]


SESSIONS = 3
"""Of so many plans in which a request may be a session, one has one."""


def with_session(actions: Sequence[Action], seed: int, length: int) -> tuple[Action, ...]:
    """The messages, with a session in some plans: a request of theirs is the first part of it. The
    next parts often come before the part before is answered, and the last one may say that no more
    come. Only one of a plan is a session: two may wait for each other (vllm#49439)."""
    r = Random(f"a session of {seed}")
    ends = any(isinstance(each, Stop) for each in actions)  # it refuses each part of a session
    plain = [
        at
        for at, each in enumerate(actions)
        if isinstance(each, Send) and each.role == "alone" and not (each.grammar or each.refused)
    ]
    if ends or not plain or r.randrange(SESSIONS):
        return (*actions,)
    made, at = [*actions], r.choice(plain)
    first = actions[at]
    assert isinstance(first, Send)
    own, answer = min(first.own, length // 4), min(first.answer, max(length // 4, 1))
    shared = min(first.shared, length // 4)
    made[at] = replace(first, shared=shared, own=own, answer=answer, stays=True)
    for _ in range(r.randint(1, 4)):
        at = r.randint(at + 1, min(at + 3, len(made)))
        part = More(r.choice(EARLY), first.request, r.choice((1, 1, 2, 3)), r.choice((1, 1, 2)))
        made.insert(at, part)
    if r.random() < 0.6:
        made.insert(min(at + r.randint(1, 2), len(made)), More(r.choice(EARLY), first.request, 0))
    return (*made[:ACTIONS_MAX],)


STOPS = 2
"""Of so many plans, in one some answers end before their largest length: by themselves, or as they
repeat themselves."""


def with_stops(actions: Sequence[Action], seed: int, ahead: bool) -> tuple[Action, ...]:
    """The messages, with answers that models end before their largest length in some plans. No
    session has one; nor, where steps with drafts begin `ahead` of the tokens before, a request with
    a grammar, whose place in its answer the workers do not know."""
    r = Random(f"stops of {seed}")
    suits = _some_of(r, lambda each: not (each.stays or (ahead and each.grammar)))
    return tuple(
        replace(each, stops=r.randint(1, each.answer)) if suits(each) else each for each in actions
    )


def without_loops(actions: Sequence[Action], seed: int) -> tuple[Action, ...]:
    """The messages, in some of which a client wants no answer that repeats itself. The answer has
    equal tokens alone: no reasoning and no grammar, and its model does not end it."""
    r = Random(f"loops of {seed}")
    plain = _some_of(r, lambda each: not (each.stays or each.stops or each.grammar))
    return tuple(
        replace(each, repeats=r.randint(2, each.answer))
        if isinstance(each, Send) and each.answer > 1 and plain(each)
        else each
        for each in actions
    )


def _some_of(r: Random, suits: Callable[[Send], bool]) -> Callable[[Action], TypeGuard[Send]]:
    """Whether a message is one of some requests that suit. One of `STOPS` plans has some."""
    some = r.randrange(STOPS) == 0

    def is_one(each: Action) -> TypeGuard[Send]:
        return some and isinstance(each, Send) and suits(each) and r.random() < 0.6

    return is_one


def with_priorities(actions: Sequence[Action], seed: int) -> tuple[Action, ...]:
    """The messages, in which some requests are urgent, and others patient."""
    r = Random(f"priorities of {seed}")
    return tuple(
        replace(each, priority=r.choice((0, 1, 1, 2))) if isinstance(each, Send) else each
        for each in actions
    )


FORGOTTEN = 4
"""Of so many plans without a store and without vectors, one has a request whose image is
forgotten."""


def with_forgotten(actions: Sequence[Action], seed: int) -> tuple[Action, ...]:
    """The messages, in some plans with one more request, whose image the engine has forgotten."""
    r = Random(f"images of {seed}")
    if not actions or len(actions) == ACTIONS_MAX or r.randrange(FORGOTTEN):
        return (*actions,)
    at = r.randrange(len(actions))
    return (*actions[:at], Send(0, "image", 0, 1, 1, forgotten=True), *actions[at:])


def to_pool(actions: Sequence[Action], seed: int, length: int) -> tuple[Action, ...]:
    """The messages as clients of a model that pools send them: no request has an answer or takes
    part in a transfer. Some prompts are as long as vLLM allows."""
    r = Random(f"vectors of {seed}")
    return tuple(
        replace(
            each,
            own=length - each.shared if r.random() < 0.3 else each.own,
            answer=1,
            role="alone",
            refused=False,
            leaves=False,
            grammar="",
            thinks=0,
            stays=False,
            stops=0,
        )
        if isinstance(each, Send)
        else each
        for each in actions
        if not isinstance(each, More | Arrive | Compile)
    )


def _send(r: Random, after: int, name: str, length: int, connected: bool) -> Send:
    """A request of at most `length` tokens."""
    role: Literal["alone", "prefill", "decode"] = "alone"
    if connected:
        role = r.choice(("alone", "prefill", "decode", "decode"))
    answer = min(r.choice((1, 1, 2, 3, 5)), length - 1)
    total = r.randint(1, length - answer)
    shared = r.choice((0, total // 2, total))
    refused = connected and r.random() < 0.2
    return Send(
        after,
        name,
        shared,
        total - shared,
        1 if role == "prefill" else answer,
        role,
        refused=refused,
        leaves=refused and r.random() < 0.5,
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
