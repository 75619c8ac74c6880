"""A plan for an engine's loop: the requests and the calls of its clients, as data. It is made from
a seed, printed, made smaller, kept in a file and played again."""

from random import Random
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from kvproof.model.plans import startup as of_starts

Small = Annotated[int, Meta(ge=0, le=64)]
Name = Annotated[str, Meta(max_length=16)]

ACTIONS_MAX = 64
Grammar = Literal["", "compiles", "late", "fails", "fails late", "rejects"]

LENGTH = 16
"""The largest number of tokens of a request, its answer included."""


class _Action(Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """An action of a plan. It happens `after` further moments of the loop. A moment is a look at
    the message queue, or a wait for a step's output. A loop that waits for a message gets the next
    action at once."""

    after: Small


class Send(_Action, frozen=True, tag="send"):
    """A client sends a request. Its prompt begins with `shared` tokens that all prompts have in
    common. `role` says who prefills it: this engine alone, this engine for a decode node
    (`prefill`), or a prefill node that holds blocks for it until it is notified (`decode`). A
    `refused` request is refused by the front of the engine, which may notify the engine. With a
    `grammar`, the request asks for structured output: its grammar is compiled at once, is compiled
    or fails `late`, or `rejects` all tokens but one. The first `thinks` tokens of the answer are
    reasoning, which the grammar does not restrict; if one request of a plan thinks, all requests
    with a grammar do."""

    request: Name
    shared: Small
    own: Small
    answer: Annotated[int, Meta(ge=1, le=LENGTH)]
    role: Literal["alone", "prefill", "decode"] = "alone"
    refused: bool = False
    grammar: Grammar = ""
    thinks: Small = 0

    @property
    def tokens(self) -> list[int]:
        """The token ids of the prompt."""
        own = sum(map(ord, self.request)) * 100
        return [*range(1, self.shared + 1), *range(own, own + max(self.own, not self.shared))]


class Cancel(_Action, frozen=True, tag="cancel"):
    """The client of a request disconnects."""

    request: Name


class Arrive(_Action, frozen=True, tag="arrive"):
    """The transfer of a request ends, successfully or not."""

    request: Name
    fails: bool = False


class Compile(_Action, frozen=True, tag="compile"):
    """The grammar of a request, which is `late`, is compiled or fails."""

    request: Name


class Pause(_Action, frozen=True, tag="pause"):
    """A client pauses the engine. With `clear`, the engine also empties its caches."""

    mode: Literal["abort", "wait", "keep"]
    clear: bool = True


class Resume(_Action, frozen=True, tag="resume"):
    """A client ends the pause."""


class Sleep(_Action, frozen=True, tag="sleep"):
    """A client sends the engine to sleep: the engine pauses, and from `level` 1 on gives up its
    memory."""

    mode: Literal["abort", "wait", "keep"]
    level: Annotated[int, Meta(ge=0, le=2)] = 1


class Wake(_Action, frozen=True, tag="wake"):
    """A client wakes the engine; with a `part`, only this part of the memory. The client has waited
    for the answer that the engine sleeps, and does nothing without that answer."""

    part: Literal["", "weights", "kv_cache"] = ""


class Reset(_Action, frozen=True, tag="reset"):
    """A client resets the prefix cache, also while requests run."""

    running: bool = False


class Stop(_Action, frozen=True, tag="stop"):
    """The engine is told to end: with `drain` after all requests are answered, otherwise at
    once."""

    drain: bool = False


Action: TypeAlias = Send | Cancel | Arrive | Compile | Pause | Resume | Sleep | Wake | Reset | Stop


class LoopPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """An engine, and the actions on it. The engine has room for one request of `LENGTH` tokens and
    for `more` blocks. With `connected` it has a NIXL connector, and a failed load ends its request
    unless `recompute`. In each step `drafts` tokens are predicted, and all are accepted. With
    `fitted`, its model takes requests of twice as many tokens, and vLLM is asked to fit this length
    to the memory."""

    actions: Annotated[tuple[Action, ...], Meta(max_length=ACTIONS_MAX)]
    block: Annotated[int, Meta(ge=1, le=LENGTH)] = 4
    more: Small = 0
    window: Small = 0
    chunk_tokens: Annotated[int, Meta(ge=1, le=64)] = 8
    overlaps: bool = False
    stages: Annotated[int, Meta(ge=1, le=3)] = 1
    prefix_caching: bool = True
    connected: bool = False
    recompute: bool = False
    drafts: Annotated[int, Meta(ge=0, le=4)] = 0
    fitted: bool = False

    @property
    def engine(self) -> of_starts.StartupPlan:
        """The start-up plan of the engine: one layer on each pipeline stage, or one of each kind of
        layers."""
        kinds = ["full", "window"] if self.window else ["full"]
        layers = tuple(
            of_starts.Layer(
                kind,  # type: ignore[arg-type]
                self.block,
                window=self.window if kind == "window" else 0,
                stage=stage,
            )
            for stage in range(self.stages)
            for kind in kinds
        )
        return of_starts.StartupPlan(
            layers=layers,
            max_model_len=LENGTH * (1 + self.fitted),
            chunk_tokens=self.chunk_tokens,
            overlaps=self.overlaps,
            prefix_caching=self.prefix_caching,
            override=True,
            auto=self.fitted,
            drafts=self.drafts,
        )

    @property
    def num_blocks(self) -> int:
        """The number of blocks of the engine, the null block included: for each group the blocks of
        one request, and one more because its tokens need not be aligned."""
        needed = -(-(LENGTH + self.drafts) // self.block) + 1
        return 1 + (2 if self.window else 1) * needed + self.more


def lines(plan: LoopPlan) -> list[str]:
    """The plan as text for a reader, one line for each action."""
    flags = ["steps overlap"] * plan.overlaps + ["no prefix caching"] * (not plan.prefix_caching)
    flags += [f"a window of {plan.window} tokens beside full attention"] * bool(plan.window)
    flags += ["a NIXL connector"] * plan.connected
    flags += ["its largest length is fitted to the memory"] * plan.fitted
    flags += [f"{plan.drafts} draft tokens"] * (plan.drafts > 0)
    return [
        f"engine: {plan.num_blocks} blocks of {plan.block} tokens; {plan.chunk_tokens} tokens a "
        f"step; {plan.stages} stages" + "".join(f", {flag}" for flag in flags),
        *(f"after {each.after} moments: {_words(each)}" for each in plan.actions),
    ]


def _words(action: Action) -> str:
    match action:
        case Send(request=name):
            whose = {"alone": "", "prefill": " for a decode node", "decode": " of a prefill node"}
            refused = ", which the front refuses" if action.refused else ""
            refused += f", with a grammar ({action.grammar})" if action.grammar else ""
            refused += f" after {action.thinks} tokens of reasoning" if action.thinks else ""
            tokens, shared = len(action.tokens), action.shared
            return (
                f"request {name}{whose[action.role]}, {tokens} tokens ({shared} of them shared), "
                f"{action.answer} to answer{refused}"
            )
        case Cancel(request=name):
            return f"the client of {name} is gone"
        case Arrive(request=name):
            return f"the transfer of {name} {'fails' if action.fails else 'ends'}"
        case Compile(request=name):
            return f"the grammar of {name} comes"
        case Pause(mode=mode):
            return f"pause, {mode}" + ", and clear the cache" * action.clear
        case Resume():
            return "resume"
        case Sleep(mode=mode, level=level):
            return f"sleep at level {level}, {mode}"
        case Wake(part=part):
            return f"wake the {part} alone" if part else "wake"
        case Reset():
            return "reset the prefix cache" + ", also under requests" * action.running
        case Stop():
            return "end" + " when all are answered" * action.drain


def random_plan(seed: int) -> LoopPlan:
    """The plan of this seed. Most plans have few features and a few requests."""
    r = Random(seed)
    connected = r.random() < 0.5
    overlaps = r.random() < 0.5
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
            answer = r.choice((1, 1, 2, 3, 5))
            role = r.choice(("alone", "prefill", "decode", "decode")) if connected else "alone"
            total = r.randint(1, LENGTH - answer)
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
    plan = LoopPlan(
        tuple(actions),
        block=r.choice((2, 4, 4)),
        more=r.choice((0, 0, 2, 8, 30)),
        window=r.choice((0, 0, 0, 5)),
        chunk_tokens=r.choice((4, 8, 16, 32)),
        overlaps=overlaps,
        stages=2 if not (connected or overlaps) and r.random() < 0.25 else 1,
        prefix_caching=r.random() < 0.8,
        connected=connected,
        recompute=connected and r.random() < 0.3,
    )
    if r.random() < 0.3:
        plan = _structured(r, plan)
    if plan.connected and not plan.overlaps and r.random() < 0.25:
        plan = replace(plan, stages=2)
    drafts = r.choice((1, 2)) if plan.stages == 1 and r.random() < 0.25 else 0
    plan = _sleeping(r, _thinking(r, replace(plan, drafts=drafts)))
    return replace(plan, fitted=r.random() < 0.2)


def _sleeping(r: Random, plan: LoopPlan) -> LoopPlan:
    """The plan with some pauses replaced by sleep. Memory often comes back in parts, with requests
    in between."""
    if r.random() < 0.5:
        return plan
    actions: list[Action] = []
    parts: list[Literal["weights", "kv_cache"]] = ["weights", "kv_cache"]
    for action in plan.actions:
        match action:
            case Pause(after=after, mode=mode):
                actions.append(Sleep(after, mode, r.choice((0, 1, 1, 2))))
                if r.random() < 0.5:
                    actions.append(Wake(r.choice((3, 8)), r.choice(parts)))
            case Resume(after=after):
                actions.append(Wake(after))
            case _:
                actions.append(action)
    return replace(plan, actions=tuple(actions))


def _structured(r: Random, plan: LoopPlan) -> LoopPlan:
    """The plan with some requests that ask for structured output."""
    actions: list[Action] = []
    late: list[str] = []
    for action in plan.actions:
        if isinstance(action, Send) and not action.refused and r.random() < 0.6:
            grammar = r.choice(("compiles", "compiles", "compiles", "late", "late", "fails late"))
            if r.random() < 0.2:
                grammar = r.choice(("fails", "rejects"))
            action = replace(action, grammar=grammar)
            late += [action.request] * grammar.endswith("late")
        actions.append(action)
        if late and r.random() < 0.4:
            actions.append(Compile(r.choice((0, 1, 2, 3)), late.pop(r.randrange(len(late)))))
    return replace(plan, actions=tuple(actions))


def _thinking(r: Random, plan: LoopPlan) -> LoopPlan:
    """The plan in which all requests with a grammar may think first. With drafts, reasoning may end
    inside a step."""
    asks = [each for each in plan.actions if isinstance(each, Send) and each.grammar]
    if not asks or r.random() < 0.5:
        return plan
    actions: list[Action] = []
    for action in plan.actions:
        if isinstance(action, Send) and action.grammar:
            thinks = r.choice((1, 2, 3, 4))
            room = LENGTH - len(action.tokens) if action.role != "prefill" else 1
            answer = max(min(thinks + r.choice((1, 2, 4)), room), 1)
            action = replace(action, thinks=thinks, answer=answer)
        actions.append(action)
    drafts = plan.drafts or r.choice((0, 1, 2)) * (plan.stages == 1)
    return replace(plan, actions=tuple(actions), drafts=drafts)
