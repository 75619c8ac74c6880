"""The plan of an episode of a connector: an engine, and the actions on it in order. A plan is data:
it can be shrunk, kept in a file and played again."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from kvproof.model.config import EngineConfig, Group
from kvproof.model.plans.config_options import ConfigOptions, in_words
from kvproof.model.plans.part import PlanPart
from kvproof.model.state import SAMPLED

FAMILIES = (
    "abcdefghijklmnopqrstuvwxyz",
    "abcdefghABCDEFGHIJKLMNOPQR",
    "0123456789!#$%&()*+,-/:;<=",
    "01234567abcdefghijklmnopqr",
)
"""Prompts are beginnings of these texts. The first two share their first eight tokens, and so do
the last two; the first and the last have equal blocks after other tokens."""

PROMPT_TOKENS_MAX = len(FAMILIES[0])


TransferParams = tuple[tuple[str, int], ...]
"""The demands of a request on its connector (`kv_transfer_params`): names and numbers."""

PREFILLED, SOURCE, DECODER = "remote_prefiller", "remote_kv_source", "remote_decoder"
"""The names under which a router says what another engine is for a request: it computes the prompt,
it may have some of it, or it answers."""

ROLES = frozenset((PREFILLED, SOURCE, DECODER))

LOAD_TIERS = "kv_load_tiers"
"""The name under which a request says what it wants of the tiers below the first: 0 for nothing."""

ROUTES: tuple[TransferParams, ...] = (
    ((PREFILLED, 0),),
    ((PREFILLED, 1),),
    ((SOURCE, 0),),
    ((SOURCE, 0),),
)
"""What a request asks of two engines that copy from each other: that the other one computes its
prompt, beside it (0) or before it (1), or that the other one is asked for what it has: this comes
twice as often, since the other one seldom has something."""

Beside = Literal["", "salt", "lora"]
"""What a request has beside its tokens. KV of equal tokens differs with it."""


IMAGES = "αβγ"
"""The letters that stand for the tokens of images in the content of a slot: one letter for each
image."""

PLACEHOLDER = "_"
"""The token of a prompt at the positions of an image."""


class Image(PlanPart, frozen=True):
    """An image in a prompt: `tokens` tokens from position `at` on. Two images with equal `which`
    and `tokens` are the same image. `before` and `behind` are the numbers of placeholder tokens
    beside it that belong to no image."""

    which: Annotated[int, Meta(ge=0, le=len(IMAGES) - 1)]
    at: Annotated[int, Meta(ge=0, le=PROMPT_TOKENS_MAX)]
    tokens: Annotated[int, Meta(ge=1, le=16)]
    before: Annotated[int, Meta(ge=0, le=4)] = 0
    behind: Annotated[int, Meta(ge=0, le=4)] = 0

    @property
    def name(self) -> str:
        """The hash of the image."""
        return f"{IMAGES[self.which]}{self.tokens}"


NO_TOKEN = "\0"
"""The token of a prompt at the positions of embeddings: its id is 0."""

EMBEDDED_FROM = chr(256)


def embedded(token: str) -> str:
    """The letter that stands for the embedding of a token in the content of a slot."""
    return chr(ord(token) + ord(EMBEDDED_FROM))


TOKEN_0 = "∅"
"""The letter of the token with the id 0 in the content of a slot."""


class Rows(PlanPart, frozen=True):
    """Embeddings that a request gives for `tokens` tokens of its prompt from position `at` on,
    beside token ids for the others (`prompt_embeds`). If they are not `used`, these positions have
    the token with the id 0 all the same (`prompt_is_token_ids`)."""

    at: Annotated[int, Meta(ge=0, le=PROMPT_TOKENS_MAX)]
    tokens: Annotated[int, Meta(ge=1, le=PROMPT_TOKENS_MAX)]
    used: bool = True


class SubmitRequest(PlanPart, frozen=True, tag="Submit"):
    """A request arrives. Its prompt is the first `tokens` tokens of a family. `beside` is the cache
    salt or the LoRA adapter on which its KV depends too. With `computes_all` it reads no cache,
    because it asks for the log-probabilities of its prompt. Its `images` are in order, and are cut
    at the end of the prompt. `asks` is its demand on the connector. In a later turn, the `answer`
    tokens from position `turn` on are an engine's earlier answer. A prompt without images may have
    embeddings in place of some tokens (`rows`). The first `trunk` tokens are those of the first
    family, so that prompts part at any token. An engine that goes by priorities serves a request
    with a smaller `priority` first."""

    family: Annotated[int, Meta(ge=0, le=len(FAMILIES) - 1)]
    tokens: Annotated[int, Meta(ge=1, le=PROMPT_TOKENS_MAX)]
    max_tokens: Annotated[int, Meta(ge=1, le=16)] = 1
    beside: Beside = ""
    computes_all: bool = False
    images: tuple[Image, ...] = ()
    asks: TransferParams = ()
    turn: Annotated[int, Meta(ge=0, le=PROMPT_TOKENS_MAX)] = 0
    answer: Annotated[int, Meta(ge=0, le=16)] = 0
    rows: Rows | None = None
    trunk: Annotated[int, Meta(ge=0, le=PROMPT_TOKENS_MAX)] = 0
    priority: Annotated[int, Meta(ge=0, le=1)] = 0

    @property
    def to_prefill(self) -> "SubmitRequest":
        """The same prompt, as a request to an engine that computes it for another engine."""
        return replace(self, max_tokens=1, computes_all=False, asks=())

    @property
    def prompt(self) -> str:
        """The prompt, with the letter of an image at each of its positions, and of an embedding."""
        images = {image: IMAGES[image.which] for image in self.whole}
        used = self.rows is not None and self.rows.used
        return self._with(images, embedded if used else lambda _: TOKEN_0)

    @property
    def tokens_of_prompt(self) -> str:
        """The prompt as the engine gets it, with placeholders at the positions of images."""
        return self._with(dict.fromkeys(self.whole, PLACEHOLDER), lambda _: NO_TOKEN)

    @property
    def embeddings(self) -> list[float]:
        """A number for each token of the prompt, which stands for its embedding; 0 where none is
        given."""
        given = self._with({}, embedded)
        return [float(ord(letter)) if letter > EMBEDDED_FROM else 0.0 for letter in given]

    @property
    def whole(self) -> tuple[Image, ...]:
        """The images that lie in the prompt as a whole."""
        return tuple(each for each in self.images if each.at + each.tokens <= self.tokens)

    def _with(self, letters: dict[Image, str], of_row: Callable[[str], str]) -> str:
        tokens = FAMILIES[0][: self.trunk] + FAMILIES[self.family][self.trunk :]
        text = list(tokens[: self.tokens])
        answered = slice(self.turn, self.turn + self.answer)
        text[answered] = SAMPLED * len(text[answered])
        if self.rows is not None:
            given = slice(self.rows.at, self.rows.at + self.rows.tokens)
            text[given] = map(of_row, text[given])
        for image in letters:
            begin, end = max(image.at - image.before, 0), image.at + image.tokens + image.behind
            text[begin:end] = PLACEHOLDER * (min(end, len(text)) - begin)
        for image, letter in letters.items():
            text[image.at : image.at + image.tokens] = letter * image.tokens
        return "".join(text)


class RunSteps(PlanPart, frozen=True, tag="Step"):
    """The engine's loop goes round this many times."""

    times: Annotated[int, Meta(ge=1, le=64)] = 1


class AbortRequest(PlanPart, frozen=True, tag="Abort"):
    """The client of a running or waiting request disconnects: of the request at this place in the
    list, modulo its length. The last one is at -1."""

    which: Annotated[int, Meta(ge=-1, le=63)] = 0


class Drain(PlanPart, frozen=True, tag=True):
    """No requests arrive until the engine says that it has no more work, or until a pause lets
    nothing change any more."""


class ResetCache(PlanPart, frozen=True, tag="Reset"):
    """The engine's own prefix cache is reset, if no block is in use. With `running`, running
    requests are preempted first; with `connector`, the connector's cache is reset too."""

    running: bool = False
    connector: bool = False


class PauseEngine(PlanPart, frozen=True, tag="Pause"):
    """The engine is paused: it schedules no request, or no new one."""

    new: bool = False


class ResumeEngine(PlanPart, frozen=True, tag="Resume"):
    """A pause ends."""


class Forget(PlanPart, frozen=True, tag=True):
    """The memory behind the connector loses all its content, or a `part` of it: another process
    makes room, and what is left no longer belongs together."""

    part: bool = False


Call = Literal["", "look-up", "get", "put"]
"""Which calls of a store or of a network fail: any, or those of one kind. A network has only gets:
copies from one engine to the other."""


class Fail(PlanPart, frozen=True, tag=True):
    """The next calls of the memory behind the connector fail; with `raises`, by an exception. Of
    files that are read together, one is gone. Only calls of one kind fail if it is given as `call`.
    Of a call for several values, that for one `value` alone fails, if its place is given, modulo
    their number."""

    times: Annotated[int, Meta(ge=1, le=8)] = 1
    raises: bool = False
    call: Call = ""
    value: Annotated[int, Meta(ge=0, le=63)] | None = None


Who = Literal["first", "second", "store"]
"""Whose loop stands: that of the first or of the second engine, or of the store."""


class Stand(PlanPart, frozen=True, tag=True):
    """A loop stands for so many steps, and its sockets stay open: that of the `first` engine or,
    where there are two, of the `second`, or that of the threads which store and load for the
    connector. Messages to it wait. It goes on early once the other engine has nothing more to do,
    or waits for it without end."""

    who: Who = "first"
    steps: Annotated[int, Meta(ge=1, le=1000)] = 1


Another = Literal["", "model", "dtype"]
"""What changes when an engine is started again: nothing, its model, or the type of its values."""


Unlike = Literal["", "model", "dtype", "transfer", "stores"]
"""How the first engine of a pair differs from the second: not at all, by its model, by the type of
its values, by the side that copies, or by stores that it has beside their connector. Engines that
differ by more than stores must not work together."""


Narrow = Literal["", "P", "D"]
"""Which of a pair of engines has blocks that are half as wide as those of the other one."""


class Restart(PlanPart, frozen=True, tag=True):
    """The engine finishes its work and is shut down, and another process starts an engine over the
    same memory behind the connector, of `another` model or type of values. The next such action
    undoes this change."""

    another: Another = ""


Action = (
    SubmitRequest
    | RunSteps
    | AbortRequest
    | Drain
    | ResetCache
    | PauseEngine
    | ResumeEngine
    | Forget
    | Fail
    | Stand
    | Restart
)


Options = tuple[tuple[str, bool | int | Literal["disk", "{tmp}/kv", "true", "users"]], ...]
"""Settings of a connector by name (`kv_connector_extra_config`). No other text is one: vLLM imports
the module that some settings name."""


STORE_ANSWERS: Options = (("offload_prompt_only", False), ("save_decode_cache", True))
"""The settings of vLLM's connectors that make them store answers, too."""


class Copies(PlanPart, frozen=True):
    """Background copies: their end is reported `steps` steps after they are submitted. A copy is
    made when it is submitted or, if `late`, just before the report."""

    late: bool = False
    steps: Annotated[int, Meta(ge=0, le=8)] = 0


class ConnectorPlan(PlanPart, frozen=True):
    """An episode: the engine, what vLLM does after a failed load, when copies are made, and the
    actions in order. After the last action the engine is drained and shut down; if it `stops`, it
    is shut down at once, with all work in progress. With `local`, the windows of the engine are
    chunked local attention: a token reads from the last multiple of the window on. Of the drafts of
    a step, the first `accepted` are accepted. `encoder_tokens` is the room of the encoder cache,
    and what the encoder may compute in a step; without images it is 0. If images are `uncut`, no
    step ends inside one (`disable_chunked_mm_input`). The tokens of an attention
    block lie on `ranks` ranks in turn (decode context parallelism): the block sizes of the engine
    are those of all ranks, and each rank has a worker. With `tensor`, each of the ranks has all
    tokens, of its own heads and states (tensor parallelism). With `every_state`, Mamba layers cache
    the state after each block (Mamba cache mode "all"), not only after the last block of a step.
    With `shared_layer`, the model has one layer more, which reads the KV cache of the first
    (`kv_sharing_target_layer_name`) and is in no cache group. The kernels of older vLLMs have
    blocks of their own, `kernel_blocks` to an attention block of the engine. Of a pair of engines,
    the one that computes prompts has `prefill_ranks` ranks; 0 says as many as the other. The blocks
    of the `narrow` one, P or D, are half as wide as those of the engine. The clock of a worker is
    `clock_ahead` seconds ahead of the scheduler's. With `latent`, attention is latent (MLA): a
    layer has one head, which each rank of tensor parallelism has. With `replicas`, there are
    several such engines side by side (data parallelism), and requests go to each in turn. With
    `uneven`, the last layer of a group of attention keeps twice as much of a token as the others.
    With `hidden`, the last cache group is a drafter's, which keeps the hidden states of each token
    and drafts nothing else. With `first_runner`, the connector is called as by vLLM's first model
    runner, not by the second. The connector has these `options` beside its settings, and the
    engine these `config_options`. The first of a
    pair may be `unlike` the second. With `buffered`, NIXL cannot read the memory of the device: KV
    goes through buffers of the host. An engine has KV events unless it is `without_events`, as
    vLLM's are by default."""

    engine: EngineConfig
    actions: tuple[Action, ...]
    load_failure: Literal["fail", "recompute"] = "recompute"
    copies: Copies = Copies()
    local: bool = False
    accepted: Annotated[int, Meta(ge=0, le=4)] = 0
    encoder_tokens: Annotated[int, Meta(ge=0, le=1024)] = 0
    ranks: Annotated[int, Meta(ge=1, le=8)] = 1
    every_state: bool = False
    shared_layer: bool = False
    kernel_blocks: Annotated[int, Meta(ge=1, le=8)] = 1
    stops: bool = False
    tensor: bool = False
    prefill_ranks: Annotated[int, Meta(ge=0, le=8)] = 0
    narrow: Narrow = ""
    clock_ahead: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    latent: bool = False
    replicas: bool = False
    uneven: bool = False
    hidden: bool = False
    first_runner: bool = False
    options: Options = ()
    config_options: ConfigOptions = ()
    unlike: Unlike = ""
    buffered: bool = False
    uncut: bool = False
    without_events: bool = False

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The types of values of the engines that are started, in order. If there are two types,
        their values have the same number of bytes."""
        changes = any(isinstance(a, Restart) and a.another == "dtype" for a in self.actions)
        changes = changes or self.unlike == "dtype"
        return ("float16", "bfloat16") if changes else ("float32",)

    @property
    def has_embeddings(self) -> bool:
        """Whether a prompt has embeddings in place of some tokens."""
        return any(isinstance(a, SubmitRequest) and a.rows is not None for a in self.actions)

    @property
    def parts_of_states(self) -> int:
        """The number of heads of a state. With tensor parallelism, each rank of the engine, or of
        the two engines, has some of them."""
        return max(self.ranks, self.prefill_ranks) if self.tensor else 1

    @property
    def stripes(self) -> int:
        """The number of ranks on which the tokens of an attention block lie."""
        return 1 if self.tensor else self.ranks

    @property
    def stores_answers(self) -> bool:
        """Whether the connector is configured to store the blocks of answers."""
        return any(option in STORE_ANSWERS for option in self.options)

    @property
    def kernel_tokens(self) -> int:
        """The number of tokens of a kernel block; 0 if kernels take the engine's blocks."""
        attention = [g.block_size for g in self.engine.groups if g.attention]
        return min(attention, default=0) // self.kernel_blocks if self.kernel_blocks > 1 else 0

    @property
    def drafts_of_layers(self) -> int:
        """The number of draft tokens of a drafter that has layers in the cache groups; 0 without
        such a drafter."""
        return _drafts(self.engine.groups, self.hidden)

    @property
    def of_some(self) -> bool:
        """Whether some vLLMs of this year cannot have such cache groups."""
        engine = self.engine
        rare = self.latent or self.kernel_blocks > 1 or (self.uneven and len(engine.groups) > 1)
        return rare or bool(engine.match_unit) or engine.retention is not None

    @property
    def traits(self) -> frozenset[str]:
        """The kinds of the cache groups, and their special properties."""
        engine = self.engine
        kinds = {"local" if self.local and g.window else g.kind for g in engine.groups}
        more = {
            "drafter": self.drafts_of_layers and not self.hidden,
            "three": len(engine.groups) > 2,
            "ranks": self.ranks > 1 and not self.tensor,
            "tensor ranks": self.tensor,
            "every state": self.every_state,
            "hits in blocks": engine.match_unit,
            "retention": engine.retention is not None,
            "shared layer": self.shared_layer,
            "kernel blocks": self.kernel_blocks > 1,
            "unequal ranks": self.prefill_ranks > 0,
            "latent": self.latent,
            "uncached": not engine.prefix_caching,
            "uneven layers": self.uneven,
            "hidden states": self.hidden,
            "narrow": self.narrow,
            "host buffers": self.buffered,
        }
        return frozenset(kinds | {word for word, is_so in more.items() if is_so})

    @property
    def odd(self) -> frozenset[str]:
        """The special properties of the cache groups alone."""
        return self.traits - {"full", "window", "mamba", "local", "three"}

    @property
    def kinds(self) -> str:
        """`traits` as a text, whatever the order and sizes of the groups: "full+window"."""
        return "+".join(sorted(self.traits))

    @property
    def words(self) -> str:
        """The cache groups in words: "full (blocks of 4) beside mamba (blocks of 4), latent"."""
        engine = self.engine
        return " beside ".join(map(self._group_in_words, engine.groups)) + (
            f" on {self.ranks} {'tensor ' * self.tensor}ranks" * (self.ranks > 1 or self.tensor)
            + f" (P: {self.prefill_ranks})" * (self.prefill_ranks > 0)
            + ", each state" * self.every_state
            + f", hits of {engine.match_unit} tokens" * (engine.match_unit > 0)
            + (f", retention {engine.retention}" if engine.retention is not None else "")
            + ", a layer shares a cache" * self.shared_layer
            + f", {self.kernel_blocks} blocks of a kernel in each" * (self.kernel_blocks > 1)
            + ", latent" * self.latent
            + ", no prefix cache" * (not engine.prefix_caching)
            + ", the last layer twice as wide" * self.uneven
            + ", the last group for hidden states" * self.hidden
            + f", half as wide on {self.narrow}" * bool(self.narrow)
            + ", through buffers of the host" * self.buffered
        )

    def _group_in_words(self, group: Group) -> str:
        kind: str = group.kind
        if group.window:
            kind = f"{'chunks' if self.local else 'window'} of {group.window}"
        return f"{kind} (blocks of {group.block_size}{', drafter' * group.eagle})"


BARE_BLOCKS = 32
"""The number of blocks of an engine that is made only to see whether the connector can be made."""


def bare(
    *groups: Group,
    match_unit: int = 0,
    retention: int | None = None,
    prefix_caching: bool = True,
    hidden: bool = False,
    **options: Any,
) -> ConnectorPlan:
    """A plan in which an engine with these cache groups is made and ends, without any request. Its
    drafter is one with layers in the groups. `match_unit`, `retention` and `prefix_caching` are
    those of the engine, `hidden` and the `options` those of the plan."""
    engine = EngineConfig(
        "E",
        groups,
        num_blocks=BARE_BLOCKS,
        drafts=_drafts(groups, hidden),
        match_unit=match_unit,
        retention=retention,
        prefix_caching=prefix_caching,
    )
    return ConnectorPlan(engine, (), hidden=hidden, **options)


def _drafts(groups: Sequence[Group], hidden: bool) -> int:
    return 1 if hidden else 2 * any(group.eagle for group in groups)


def lines(plan: ConnectorPlan) -> list[str]:
    """The plan as text for a reader, one line for each action."""
    engine = plan.engine
    more = ", steps overlap" * engine.overlaps + ", by priority" * engine.by_priority
    more += f", clocks of workers {plan.clock_ahead} s ahead" * (plan.clock_ahead != 0)
    more += ", on each of two replicas" * plan.replicas
    more += ", called by the first model runner" * plan.first_runner
    more += ", without KV events" * plan.without_events
    more += "".join(f", {name} {value}" for name, value in plan.options)
    more += in_words(plan.config_options)
    more += f", P with another {NOUNS[plan.unlike]}" * bool(plan.unlike)
    if engine.drafts:
        more += f", {engine.drafts} drafts, {plan.accepted} accepted"
    if plan.encoder_tokens:
        more += f"; an encoder cache of {plan.encoder_tokens} tokens"
        more += ", images are not cut" * plan.uncut
    shown = [
        f"engine: {engine.num_blocks} blocks; {plan.words}; {engine.chunk_tokens} tokens a "
        f"step{more}; {copies_in_words(plan.copies)}"
    ]
    arrived = 0
    for number, action in enumerate(plan.actions, 1):
        if isinstance(action, SubmitRequest):
            what = f"request r{arrived} arrives: {action.prompt!r}, {action.max_tokens} to answer"
            what += BESIDE[action.beside] + ", prompt log-probabilities" * action.computes_all
            what += "".join(f", image {i.name} at token {i.at}{_bare(i)}" for i in action.whole)
            if action.rows is not None:
                used = "" if action.rows.used else "unused "
                what += f", {action.rows.tokens} {used}embeddings from token {action.rows.at} on"
            what += "".join(f", {name} {number}" for name, number in action.asks)
            if engine.by_priority:
                what += f", priority {action.priority}"
            arrived += 1
        else:
            what = WORDS[type(action)] + _more(action)
        shown.append(f"{number:3}. {what}")
    if plan.stops:
        shown.append("the engine is shut down at once")
    return shown


def _more(action: Action) -> str:
    if isinstance(action, RunSteps) and action.times > 1:
        return f", {action.times} times"
    if isinstance(action, Fail):
        where = f" in its next {action.times} calls" + f" of a {action.call}" * bool(action.call)
        where += f", for value {action.value} of each" * (action.value is not None)
        return where + ", a store by an exception" * action.raises
    if isinstance(action, Stand):
        return f": that of the {action.who}, for {action.steps} steps"
    if isinstance(action, Forget):
        return ", but for a part" * action.part
    if isinstance(action, ResetCache):
        return ", and the connector's" * action.connector + (
            "; requests that run are preempted" * action.running
        )
    if isinstance(action, Restart) and action.another:
        return f", with another {NOUNS[action.another]}"
    if isinstance(action, PauseEngine):
        return ": no new request is scheduled" if action.new else ": nothing is scheduled"
    return ""


NOUNS: dict[str, str] = {
    "": "",
    "model": "model",
    "dtype": "type of values",
    "transfer": "side that copies",
    "stores": "set of stores",
}

BESIDE: dict[str, str] = {"": "", "salt": ", with a cache salt", "lora": ", with a LoRA adapter"}
"""What a request has beside its tokens, in words."""


def copies_in_words(copies: Copies) -> str:
    """When background copies are made and reported."""
    when = "late" if copies.late else "at once"
    return f"background copies are made {when} and reported after {copies.steps} steps"


WORDS: dict[type, str] = {
    RunSteps: "a step",
    AbortRequest: "a client goes away",
    Drain: "the engine runs until it has nothing more to do",
    ResetCache: "the engine's own prefix cache is emptied",
    PauseEngine: "the engine is paused",
    ResumeEngine: "the pause ends",
    Forget: "the store forgets what it has, or the network all connections",
    Fail: "the store or the network fails",
    Stand: "a loop stands, and its sockets stay open",
    Restart: "the engine ends its work and is started again",
}
"""The actions in words."""


def _bare(image: Image) -> str:
    bare = image.before + image.behind
    where = " before" if image.before else " behind"
    return f" with {bare} placeholders{where}" if bare else ""
