"""What clients do with the loop of an engine core, and when, as data."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from kvproof.model.plans.part import PlanPart

Small = Annotated[int, Meta(ge=0, le=64)]
Name = Annotated[str, Meta(max_length=16)]

ACTIONS_MAX = 64
Grammar = Literal["", "compiles", "late", "fails", "fails late", "rejects"]

LENGTH = 16
"""The largest number of tokens of a request, its answer included."""


class _Action(PlanPart, frozen=True, tag_field="kind"):
    """An action of a plan. It happens `after` further moments of the loop. A moment is a look at
    the message queue, or a wait for a step's output. A loop that waits for a message gets the next
    action at once."""

    after: Small


class Send(_Action, frozen=True, tag="send"):
    """A client sends a request, unless it is longer than its engine allows. Its prompt begins with
    `shared` tokens that all prompts have in common; its `own` tokens are those of another request
    if it is `like` that one. `role` says who prefills it: this engine alone,
    this engine for a decode node (`prefill`), or a prefill node that holds blocks for it until it
    is notified (`decode`). A `refused` request is refused by the front of the engine, which may
    notify the engine; or, if its client `leaves`, the client disconnects while the front still
    works on it. With a `grammar`, the request asks for structured output: its grammar is
    compiled at once, is compiled or fails `late`, or `rejects` all tokens but one. The first
    `thinks` tokens of the answer are reasoning, which the grammar does not restrict; if one request
    of a plan thinks, all requests with a grammar do. The client of a request that `stays` may send
    more: it is a session. If it `stops`, the model ends the answer with its token of this number,
    before its largest length or with it. If its client wants no `repeats`, the engine ends the
    answer when it has so many equal tokens in a row. Of two requests, the one of less `priority`
    comes first, where the engine goes by priority. A `forgotten` request has an image that its
    front does not send, because it believes that the engine has it. The engine has forgotten
    it."""

    request: Name
    shared: Small
    own: Small
    answer: Annotated[int, Meta(ge=1, le=LENGTH)]
    role: Literal["alone", "prefill", "decode"] = "alone"
    refused: bool = False
    grammar: Grammar = ""
    thinks: Small = 0
    stays: bool = False
    leaves: bool = False
    like: Name = ""
    stops: Small = 0
    repeats: Small = 0
    priority: Small = 0
    forgotten: bool = False

    @property
    def tokens(self) -> list[int]:
        """The token ids of the prompt."""
        own = sum(map(ord, self.like or self.request)) * 100
        return [*range(1, self.shared + 1), *range(own, own + max(self.own, not self.shared))]


class More(_Action, frozen=True, tag="more"):
    """The client of a session sends the next part of its prompt, of `own` tokens, whether the part
    before is answered or not. Without tokens, it says that no more parts come."""

    request: Name
    own: Small
    answer: Annotated[int, Meta(ge=1, le=LENGTH)] = 1


class Cancel(_Action, frozen=True, tag="cancel"):
    """The client of a request disconnects; the same message says so of the requests `beside`."""

    request: Name
    beside: tuple[Name, ...] = ()


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


Action: TypeAlias = (
    Send | More | Cancel | Arrive | Compile | Pause | Resume | Sleep | Wake | Reset | Stop
)


def words(action: Action) -> str:
    """An action in words."""
    match action:
        case Send(request=name):
            whose = {"alone": "", "prefill": " for a decode node", "decode": " of a prefill node"}
            refused = ", which the front refuses" * (action.refused and not action.leaves)
            refused += ", whose client leaves the front" * action.leaves
            refused += f", with a grammar ({action.grammar})" if action.grammar else ""
            refused += f" after {action.thinks} tokens of reasoning" if action.thinks else ""
            refused += ", a session" * action.stays
            refused += f", like {action.like}" * bool(action.like)
            refused += f", priority {action.priority}" * bool(action.priority)
            tokens, shared = len(action.tokens), action.shared
            stops = f", of which the model gives {action.stops}" * bool(action.stops)
            stops += f", until {action.repeats} are equal" * bool(action.repeats)
            return (
                f"request {name}{whose[action.role]}, {tokens} tokens ({shared} of them shared), "
                f"{action.answer} to answer{stops}{refused}"
            )
        case More(request=name, own=0):
            return f"the session {name} gets no more parts"
        case More(request=name, own=own):
            return f"the next part of {name}, {own} tokens, {action.answer} to answer"
        case Cancel(request=name, beside=beside):
            return f"the client of {' and '.join((name, *beside))} is gone"
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
