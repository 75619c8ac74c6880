"""A plan for an engine core: its layers, its workers and their memory, and what its clients do, as
data. It is made from a seed, printed, made smaller, kept in a file and carried out again."""

from typing import Annotated, Literal

from msgspec import Meta

from kvproof.model.counted import counted
from kvproof.model.plans.config_options import ConfigOptions, in_words
from kvproof.model.plans.connector import Copies, copies_in_words
from kvproof.model.plans.messages import ACTIONS_MAX, LENGTH, Action, words
from kvproof.model.plans.part import PlanPart

Kind = Literal[
    "full", "window", "chunked", "mla", "window mla", "mamba", "hidden", "sink", "ring", "rswa"
]
Count = Annotated[int, Meta(ge=1, le=1 << 20)]

LAYERS_MAX = 24

REQUESTS_MAX = 4
"""The largest number of requests that a step serves."""

KEEP_ALL: tuple[Kind, ...] = ("full", "mla", "hidden", "sink")
"""The kinds of layers that read all tokens."""

OF_KIT: tuple[Kind, ...] = ("full", "window", "mamba")
"""The kinds of layers that the workers of the kit have here."""

IN_ONE_BLOCK: tuple[Kind, ...] = ("mamba", "ring")
"""The kinds of layers that may have one block of a request, whatever its length."""

WINDOWS: tuple[Kind, ...] = ("window", "window mla")
"""The kinds of layers that read the last tokens alone."""


class Layer(PlanPart, frozen=True):
    """A layer with a KV cache. Its blocks have `block` tokens. A token has `heads` vectors of
    `width` numbers for K, and as many for V (none for MLA, also in a window, and none for the
    hidden states that an engine keeps for its user); a number has `bytes`. A Mamba layer has a
    state of `heads` times `width` numbers; with `padded`, its page is as large as the largest of
    the attention layers, as vLLM's platforms set it. A ring has the last tokens of a request, in
    one block that the request holds to its end (`CircularBufferSpec`). A token of a layer with a
    reference window (`rswa`) reads the whole prompt, and of the answer its last `window` tokens;
    otherwise these are the tokens of a sliding window or of a local chunk. `stage` is the pipeline
    stage that has the layer."""

    kind: Kind
    block: Count
    heads: Count = 1
    width: Count = 4
    bytes: Literal[1, 2, 4] = 4
    window: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    padded: bool = False
    stage: Annotated[int, Meta(ge=0, le=3)] = 0

    @property
    def content_bytes(self) -> int:
        """The bytes of one token; of a Mamba layer, the bytes of one state."""
        vectors = 1 if self.kind in ("mla", "window mla", "mamba", "hidden") else 2
        return self.heads * self.width * self.bytes * vectors

    @property
    def words(self) -> str:
        """The layer in words."""
        tokens = f", {self.window} tokens" if self.window else ""
        padded = ", padded" if self.padded else ""
        return (
            f"{self.kind}{tokens} in blocks of {self.block}, {self.content_bytes} bytes a "
            f"{'state' if self.kind == 'mamba' else 'token'}{padded}, stage {self.stage}"
        )


Drafter = Literal["ngram", "eagle", "parallel eagle", "draft model", "parallel draft model"]
"""What predicts the next tokens: the text before, an EAGLE head, or a smaller model. One that is
parallel predicts all tokens of a step at once, in slots of the step's budget."""


class EnginePlan(PlanPart, frozen=True):
    """The plan of an engine core: what it is started with, and then the actions of its clients,
    which its loop gets. Each of the pipeline stages has `ranks` workers with equal layers. A step
    computes at most `chunk_tokens` tokens; with `overlaps`, one may begin before the output of the
    one before has arrived. The engine has `prefix_caching`, and then KV events unless it is
    `without_events`, and vLLM's `hybrid` KV cache manager. It and its fronts make statistics
    unless it is `without_statistics` (`--disable-log-stats`).
    `layout` is the KV cache layout that its workers like best. The request that runs alone has
    `max_model_len` tokens, of which `answer_tokens` are the answer.

    `blocks` says how much memory there is, in blocks beyond what one request of `max_model_len`
    tokens needs (the null block included): `need` is the number that a run with plenty of memory
    took, and `ample` is a bound that no engine has to exceed (`counted_from`). If it is `given`,
    `blocks` is the whole number; the engine is then started once, and no request runs alone. Each
    worker has the memory of these blocks, and `odd_bytes` more, less than a block. The worker with
    the number `richer` (modulo the number of workers) has the memory of `more` further blocks. With
    `override`, the number is `num_gpu_blocks_override`, and memory is plenty. With `auto`, vLLM is
    asked to fit `max_model_len` to the memory.

    The model of an engine that `pools` answers a request with one vector in place of tokens, when
    all of its prompt is computed. So a prompt may have `max_model_len` tokens.

    With several `shards`, the tokens of an attention block lie on that number of ranks in turn
    (decode context parallelism). In each step a `drafter` predicts `drafts` tokens, and each
    `misses`-th token of an answer wrongly (0: none). A step serves at most so many `requests`,
    `by_priority` or as they come. With `every_state`, a Mamba layer keeps the state after each
    block, not only after the last block of a step.

    A `connected` engine has a NIXL connector, and a failed load ends its request unless
    `recompute`. An engine with `plain` layers may have a `store` in place of it: a connector of the
    kit by its short name, in which copies are made as `copies` says. Its configs have these
    `config_options`."""

    layers: Annotated[tuple[Layer, ...], Meta(max_length=LAYERS_MAX)]
    max_model_len: Count
    chunk_tokens: Count
    answer_tokens: Count = 1
    ranks: Annotated[int, Meta(ge=1, le=4)] = 1
    overlaps: bool = False
    prefix_caching: bool = False
    hybrid: bool = True
    layout: str = "LBNHC"
    counted_from: Literal["need", "ample", "given"] = "need"
    blocks: Annotated[int, Meta(ge=-64, le=1 << 20)] = 0
    odd_bytes: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    more: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    richer: Annotated[int, Meta(ge=0, le=15)] = 0
    override: bool = False
    auto: bool = False
    shards: Annotated[int, Meta(ge=1, le=4)] = 1
    drafts: Annotated[int, Meta(ge=0, le=4)] = 0
    drafter: Drafter = "ngram"
    misses: Annotated[int, Meta(ge=0, le=8)] = 0
    requests: Annotated[int, Meta(ge=1, le=REQUESTS_MAX)] = REQUESTS_MAX
    by_priority: bool = False
    pools: bool = False
    without_events: bool = False
    without_statistics: bool = False
    every_state: bool = False
    connected: bool = False
    recompute: bool = False
    store: Annotated[str, Meta(max_length=32)] = ""
    copies: Copies = Copies()
    config_options: ConfigOptions = ()
    actions: Annotated[tuple[Action, ...], Meta(max_length=ACTIONS_MAX)] = ()

    @property
    def is_given(self) -> bool:
        """Whether the number of blocks is given, and no start is needed to count it."""
        return self.counted_from == "given"

    @property
    def stages(self) -> int:
        """The number of pipeline stages."""
        return 1 + max((layer.stage for layer in self.layers), default=0)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the plan's layers, sorted."""
        return tuple(sorted({layer.kind for layer in self.layers}))

    @property
    def plain(self) -> bool:
        """Whether the workers of the kit can have its layers: on one worker, with numbers of four
        bytes, and alike but for what they keep. Hits end with whole blocks."""
        attention = [each for each in self.layers if each.kind != "mamba"]
        alike = {(each.block, each.heads, each.width) for each in attention}
        states = {each.block for each in self.layers if each.kind == "mamba"}
        if states and not (self.prefix_caching and states <= {each.block for each in attention}):
            return False
        whole = all(each.bytes == 4 and each.kind in OF_KIT for each in self.layers)
        one = self.stages == self.ranks == self.shards == len(alike) == 1
        return one and whole and not (self.connected or self.drafts or self.every_state)

    def workers(self) -> list[dict[str, Layer]]:
        """The layers of each worker, by name."""
        return [
            {f"layers.{i}": layer for i, layer in enumerate(self.layers) if layer.stage == stage}
            for stage in range(self.stages)
            for _ in range(self.ranks)
        ]


def given(
    actions: tuple[Action, ...] = (),
    block: int = 4,
    *,
    more: int = 0,
    window: int = 0,
    stages: int = 1,
    fitted: bool = False,
    drafts: int = 0,
    chunk_tokens: int = 8,
    overlaps: bool = False,
    prefix_caching: bool = True,
    connected: bool = False,
    recompute: bool = False,
) -> EnginePlan:
    """The plan of an engine of given sizes: layers of full attention, and of a `window` beside it,
    with room for one request of `LENGTH` tokens and for `more` blocks. With `fitted`, its model
    takes requests of twice as many tokens, and vLLM is asked to fit this length to the memory."""
    kinds: dict[Kind, int] = {"full": 0, **({"window": window} if window else {})}
    # The tokens of a request need not be aligned.
    of_request = -(-(LENGTH + drafts) // block) + 1
    return EnginePlan(
        layers=tuple(
            Layer(kind, block, window=tokens, stage=stage)
            for stage in range(stages)
            for kind, tokens in kinds.items()
        ),
        max_model_len=LENGTH * (1 + fitted),
        chunk_tokens=chunk_tokens,
        counted_from="given",
        blocks=1 + len(kinds) * of_request + more,
        override=True,
        auto=fitted,
        drafts=drafts,
        actions=actions,
        overlaps=overlaps,
        prefix_caching=prefix_caching,
        connected=connected,
        recompute=recompute,
    )


def lines(plan: EnginePlan) -> list[str]:
    """The plan as text for a reader, one line for each layer and each action."""
    flags = ["steps overlap"] * plan.overlaps + ["prefix caching"] * plan.prefix_caching
    flags += ["no KV events"] * plan.without_events
    flags += ["no statistics"] * plan.without_statistics + ["hybrid manager off"] * (
        not plan.hybrid
    )
    flags += [f"layout {plan.layout}"]
    flags += [f"blocks on {plan.shards} ranks"] * (plan.shards > 1)
    flags += [f"{counted(plan.drafts, 'draft token')} ({plan.drafter})"] * (plan.drafts > 0)
    flags += [f"each {plan.misses}. token is predicted wrongly"] * bool(plan.misses)
    flags += [f"at most {counted(plan.requests, 'request')} a step"] * (
        plan.requests < REQUESTS_MAX
    )
    flags += ["by priority"] * plan.by_priority
    flags += ["a pooling model"] * plan.pools
    flags += ["every state is kept"] * plan.every_state
    flags += ["a NIXL connector"] * plan.connected
    flags += [f"the store {plan.store}, {copies_in_words(plan.copies)}"] * bool(plan.store)
    length = "at most " * plan.auto + f"{plan.max_model_len} tokens"
    alone = f", {plan.answer_tokens} of them answered" * (not (plan.is_given or plan.pools))
    return [
        f"engine: a request has {length}{alone}; "
        f"{plan.chunk_tokens} tokens a step; {counted(plan.stages, 'stage')} of "
        f"{counted(plan.ranks, 'worker')}; " + ", ".join(flags) + in_words(plan.config_options),
        *(f"layer {i}: {layer.words}" for i, layer in enumerate(plan.layers)),
        _memory(plan),
        *(f"after {each.after} moments: {words(each)}" for each in plan.actions),
    ]


def _memory(plan: EnginePlan) -> str:
    """How much memory the workers have, in words."""
    what = "num_gpu_blocks_override is" if plan.override else "memory is for"
    if plan.is_given:
        return f"{what} {plan.blocks}" + ", and the length is fitted to the memory" * plan.auto
    from_ = "one request needs" if plan.counted_from == "need" else "is ample"
    richer = f"; worker {plan.richer} has {plan.more} more" if plan.more else ""
    return f"{what} {plan.blocks:+} blocks from what {from_}, and {plan.odd_bytes} bytes{richer}"
