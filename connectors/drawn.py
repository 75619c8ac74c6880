"""Plans that Hypothesis draws: engines of every kind that a connector takes, and traffic in which
prompts share beginnings, requests are aborted, and the engine's own cache is emptied."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from kvproof.connectors.plan import (
    IMAGES,
    PROMPT_TOKENS_MAX,
    AbortRequest,
    Action,
    Another,
    Beside,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    Forget,
    Image,
    Narrow,
    Options,
    PauseEngine,
    ReceiveOutput,
    ResetCache,
    Restart,
    ResumeEngine,
    RunSteps,
    SubmitRequest,
    TransferParams,
    Unlike,
)
from kvproof.model.config import EngineConfig, Group

OF_PLAN = (
    *("local", "ranks", "tensor", "every_state", "shared_layer", "kernel_blocks"),
    *("prefill_ranks", "latent", "uneven", "hidden", "narrow", "buffered"),
)
"""The fields of `LayerGroups` that a plan has too."""


class LayerGroups(NamedTuple):
    """The cache groups of an engine. With `local`, windows are chunked local attention. `ranks` is
    the size of decode context parallelism; with `tensor`, of tensor parallelism, in which the first
    of a pair of engines may have `prefill_ranks` ranks. With `every_state`, a Mamba layer caches
    the state after each block. `match_unit` and `retention` are those of the engine: hits may end
    inside a block, and few blocks of windows and states stay in its cache. With `shared_layer`, one
    more layer reads the cache of the first layer. A connector gets kernel blocks, `kernel_blocks`
    to an attention block. With `latent`, attention is latent (MLA). With `uncached`, the engine has
    no prefix cache of its own. With `uneven`, the last layer of a group of attention is twice as
    wide. With `hidden`, the last group is for the hidden states of tokens. The blocks of the
    `narrow` one of a pair of engines are half as wide. With `buffered`, KV goes through buffers of
    the host."""

    groups: tuple[Group, ...]
    local: bool = False
    ranks: int = 1
    every_state: bool = False
    match_unit: int = 0
    retention: int | None = None
    shared_layer: bool = False
    tensor: bool = False
    kernel_blocks: int = 1
    prefill_ranks: int = 0
    latent: bool = False
    uncached: bool = False
    uneven: bool = False
    hidden: bool = False
    narrow: Narrow = ""
    buffered: bool = False

    @property
    def drafts(self) -> int:
        """The number of draft tokens of a drafter with layers in these groups; 0 without a
        drafter."""
        return 1 if self.hidden else 2 * any(group.eagle for group in self.groups)

    @classmethod
    def of(cls, plan: ConnectorPlan) -> "LayerGroups":
        """The cache groups of a plan."""
        engine = plan.engine
        return cls(
            engine.groups,
            match_unit=engine.match_unit,
            retention=engine.retention,
            uncached=not engine.prefix_caching,
            **{name: getattr(plan, name) for name in OF_PLAN},
        )

    @property
    def of_plan(self) -> dict[str, Any]:
        """The arguments of a plan, beside its engine, that describe these cache groups."""
        return {name: getattr(self, name) for name in OF_PLAN}

    @property
    def of_some(self) -> bool:
        """Whether some vLLMs of this year cannot have such groups."""
        rare = self.latent or self.kernel_blocks > 1 or (self.uneven and len(self.groups) > 1)
        return rare or bool(self.match_unit) or self.retention is not None

    @property
    def traits(self) -> frozenset[str]:
        """The kinds of the groups, and their special properties."""
        kinds = {"local" if self.local and g.window else g.kind for g in self.groups}
        more = {
            "drafter": self.drafts and not self.hidden,
            "three": len(self.groups) > 2,
            "ranks": self.ranks > 1 and not self.tensor,
            "tensor ranks": self.tensor,
            "every state": self.every_state,
            "hits in blocks": self.match_unit,
            "retention": self.retention is not None,
            "shared layer": self.shared_layer,
            "kernel blocks": self.kernel_blocks > 1,
            "unequal ranks": self.prefill_ranks > 0,
            "latent": self.latent,
            "uncached": self.uncached,
            "uneven layers": self.uneven,
            "hidden states": self.hidden,
            "narrow": self.narrow,
            "host buffers": self.buffered,
        }
        return frozenset(kinds | {word for word, is_so in more.items() if is_so})

    @property
    def kinds(self) -> str:
        """`traits` as a text, whatever the order and sizes of the groups: "full+window"."""
        return "+".join(sorted(self.traits))

    @property
    def words(self) -> str:
        """The groups in words: "full (blocks of 4) beside mamba (blocks of 4)"."""
        return " beside ".join(
            f"{'local' if self.local and g.window else g.kind} (blocks of {g.block_size}"
            + ", drafter)" * g.eagle
            + ")" * (not g.eagle)
            for g in self.groups
        ) + (
            f" on {self.ranks} {'tensor ' * self.tensor}ranks" * (self.ranks > 1 or self.tensor)
            + f" (P: {self.prefill_ranks})" * (self.prefill_ranks > 0)
            + ", each state" * self.every_state
            + f", hits of {self.match_unit} tokens" * (self.match_unit > 0)
            + (f", retention {self.retention}" if self.retention is not None else "")
            + ", a layer shares a cache" * self.shared_layer
            + f", {self.kernel_blocks} blocks of a kernel in each" * (self.kernel_blocks > 1)
            + ", latent" * self.latent
            + ", no prefix cache" * self.uncached
            + ", the last layer twice as wide" * self.uneven
            + ", the last group for hidden states" * self.hidden
            + f", half as wide on {self.narrow}" * bool(self.narrow)
            + ", through buffers of the host" * self.buffered
        )


ALONE: tuple[LayerGroups, ...] = (
    LayerGroups((Group("full", 4),)),
    LayerGroups((Group("full", 2),)),
    LayerGroups((Group("full", 4),), kernel_blocks=2),
    LayerGroups((Group("full", 4),), latent=True),
    LayerGroups((Group("full", 4),), uncached=True),
    LayerGroups((Group("full", 4),), uneven=True),
    LayerGroups((Group("full", 4),), latent=True, uneven=True),
)
"""Cache groups for a connector that supports one group."""

HYBRID: tuple[LayerGroups, ...] = (
    *ALONE,
    LayerGroups((Group("full", 4, eagle=True),)),
    LayerGroups((Group("full", 4), Group("window", 4, window=8))),
    LayerGroups((Group("full", 4), Group("window", 4, window=6))),
    LayerGroups((Group("full", 2), Group("window", 2, window=4))),
    LayerGroups((Group("full", 4), Group("window", 4, window=8, eagle=True))),
    LayerGroups((Group("full", 8), Group("window", 2, window=4))),
    LayerGroups((Group("window", 4, window=8), Group("full", 4))),
    LayerGroups((Group("full", 4), Group("window", 8, window=8))),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), local=True),
    LayerGroups((Group("full", 4), Group("mamba", 4))),
    LayerGroups((Group("mamba", 4), Group("full", 4))),
    LayerGroups((Group("full", 8), Group("mamba", 8))),
    LayerGroups((Group("full", 4), Group("mamba", 4)), every_state=True),
    LayerGroups((Group("full", 4), Group("window", 4, window=8), Group("window", 4, window=8))),
    LayerGroups(
        (Group("full", 4), Group("window", 4, window=8), Group("window", 4, window=8, eagle=True))
    ),
    LayerGroups((Group("full", 4), Group("window", 4, window=8), Group("window", 4, window=4))),
    LayerGroups((Group("full", 4), Group("mamba", 4), Group("mamba", 4))),
    LayerGroups((Group("full", 4), Group("window", 4, window=9))),
    LayerGroups((Group("full", 4), Group("window", 4, window=5))),
    LayerGroups((Group("full", 4), Group("mamba", 4)), match_unit=2),
    LayerGroups((Group("mamba", 8), Group("full", 8)), match_unit=2),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), retention=0),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), retention=8),
    LayerGroups((Group("full", 4), Group("mamba", 4)), retention=0),
    LayerGroups((Group("full", 4), Group("mamba", 4)), retention=8),
    LayerGroups(
        (Group("full", 8), Group("window", 2, window=4), Group("window", 2, window=4, eagle=True))
    ),
    LayerGroups(
        (Group("full", 8), Group("window", 8, window=8), Group("window", 2, window=4, eagle=True))
    ),
    LayerGroups((Group("full", 4),), shared_layer=True),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), shared_layer=True),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), kernel_blocks=2),
    LayerGroups((Group("full", 4), Group("mamba", 4)), kernel_blocks=2),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), latent=True),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), uncached=True),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), uneven=True),
    LayerGroups((Group("full", 4), Group("window", 4, window=8)), latent=True, uneven=True),
)
"""Cache groups for a connector that supports several (`SupportsHMA`)."""

HIDDEN: tuple[LayerGroups, ...] = tuple(
    LayerGroups(groups, hidden=True)
    for groups in (
        (Group("full", 4), Group("full", 4)),
        (Group("full", 4), Group("full", 8)),
        (Group("full", 8), Group("full", 4)),
        (Group("full", 4), Group("window", 4, window=8), Group("full", 4)),
        (Group("full", 8), Group("window", 8, window=8), Group("full", 4)),
    )
)
"""Cache groups for a connector that saves hidden states. Its drafter drafts a token in each step,
beside which the kit has no Mamba groups."""

SPREAD: tuple[LayerGroups, ...] = (
    LayerGroups((Group("full", 8),), ranks=2),
    LayerGroups((Group("full", 8),), ranks=2, latent=True),
    LayerGroups((Group("full", 8), Group("mamba", 8)), ranks=2, every_state=True),
    LayerGroups((Group("full", 4), Group("mamba", 4)), ranks=4, tensor=True),
)
"""Cache groups on several ranks. Beside attention blocks that lie on several, each state is cached:
where the last one of a step alone is, a Mamba block has the tokens of an attention block on one
rank (`cache_config.block_size`, at which vLLM ends steps), and narrower ones than those of all
ranks are not modelled. The model has two KV
heads: two of four tensor ranks have one of them each, and each rank has states of its own."""


def unequal(ranks: Sequence[tuple[int, int]]) -> list[LayerGroups]:
    """The cache groups of a pair of engines on these numbers of ranks. Of the two KV heads, a rank
    has both, or one alone, or one together with another rank; latent attention has one head, which
    all ranks have. No two ranks have the same head of a state."""
    spread = [
        LayerGroups((Group("full", 4),), ranks=d, tensor=True, prefill_ranks=p) for p, d in ranks
    ]
    spread += [each._replace(latent=True) for each in spread]
    beside = Group("window", 4, window=8), Group("mamba", 4)
    more = [each._replace(groups=(*each.groups, one)) for each in spread for one in beside]
    return [*spread, *more]


FULL_ON_NARROW = LayerGroups((Group("full", 8),), narrow="P")
NARROWER: tuple[LayerGroups, ...] = (
    FULL_ON_NARROW,
    FULL_ON_NARROW._replace(latent=True),
    *(FULL_ON_NARROW._replace(kernel_blocks=2, narrow=one) for one in ("P", "D")),
    FULL_ON_NARROW._replace(groups=(Group("full", 8), Group("window", 8, window=16))),
    FULL_ON_NARROW._replace(groups=(Group("full", 8), Group("mamba", 8))),
)
"""Cache groups of a pair of engines, one of which has narrower blocks. Where D reads from wider
blocks, the blocks of a kernel are equal."""


BUFFERED: tuple[LayerGroups, ...] = tuple(
    LayerGroups(groups, latent=latent, kernel_blocks=kernel_blocks, buffered=True)
    for groups, latent, kernel_blocks in (
        ((Group("full", 4),), False, 1),
        ((Group("full", 4),), True, 1),
        ((Group("full", 4),), False, 2),
        ((Group("full", 4), Group("window", 4, window=8)), False, 1),
        ((Group("full", 8), Group("window", 8, window=16)), False, 1),
    )
)
"""Cache groups of a pair of engines on a device that NIXL cannot read."""


TOGETHER = ((0,), (0, 1), (0, 3), (2, 3))
"""The families of prompts in one episode."""

BESIDE: tuple[tuple[Beside, ...], ...] = (
    ("",),
    ("",),
    ("", "salt"),
    ("", "lora"),
    ("salt", "lora"),
)
"""The salts and adapters of the requests of one episode."""

IMAGE_TOKENS_MAX = 5
WHICH = st.integers(0, len(IMAGES) - 1)
SIZES = st.integers(1, IMAGE_TOKENS_MAX)
TURNS_MAX = 8
ROUNDS_MAX = 4


@st.composite
def plans(
    draw: st.DrawFn,
    kinds: Sequence[LayerGroups],
    overlaps: bool,
    forgets: bool = False,
    images: bool = False,
    asks: Sequence[TransferParams] = (),
    paired: bool = False,
    restarts: Sequence[Another] = (),
    replicas: bool = False,
    options: Sequence[Options] = (),
    unlike: Sequence[Unlike] = (),
) -> ConnectorPlan:
    """Draw plans for engines of these kinds: with async scheduling if `overlaps`, with a memory
    that may lose its content and fail if `forgets`, and with images in prompts if `images`. A
    request may make one of the demands `asks` on the connector. If engines are `paired`, workers
    may have other clocks than schedulers. An engine may be started again, with one of the changes
    `restarts`, or be one of several `replicas`. In half of the plans the connector has one or two
    of these `options`. The first of a pair may be `unlike` the second."""
    alike = draw(st.sampled_from(sorted({each.kinds for each in kinds})))
    layers = draw(st.sampled_from([each for each in kinds if each.kinds == alike]))
    chosen = layers.groups
    size = max(group.block_size for group in chosen)
    blocks = 1 + sum(-(-(PROMPT_TOKENS_MAX + 4) // group.block_size) for group in chosen)
    attention = all(group.attention for group in chosen)
    ngrams = 2 * (attention and draw(st.integers(0, 5)) == 0)
    drafts = layers.drafts or ngrams
    engine = EngineConfig(
        "E",
        chosen,
        # In a wide pool, what windows give up is not used again before it is stored.
        num_blocks=blocks + draw(st.sampled_from((0, 1, 2, 3, 4, 4, blocks, blocks))),
        chunk_tokens=draw(st.sampled_from((size + 1, 4 * size, 64))),
        steps_in_flight=2 if overlaps and not ngrams and draw(st.booleans()) else 1,
        drafts=drafts,
        match_unit=layers.match_unit,
        retention=layers.retention,
        prefix_caching=not layers.uncached,
    )
    # Prompts end at a block boundary, or one token beside it, more often than elsewhere.
    boundary = st.integers(1, PROMPT_TOKENS_MAX // size).map(lambda blocks: blocks * size)
    tokens = st.one_of(
        boundary,
        st.tuples(boundary, st.sampled_from((-1, 1))).map(sum),
        st.integers(1, PROMPT_TOKENS_MAX),
    ).filter(lambda count: 1 <= count <= PROMPT_TOKENS_MAX)
    family = st.sampled_from(draw(st.sampled_from(TOGETHER)))
    # Few prompts, so that they come again, and longer ones after shorter ones.
    begun = draw(st.lists(st.tuples(family, tokens), min_size=1, max_size=4, unique=True))
    prompts = [*((*prompt, 0, 0) for prompt in begun), *draw(later_turns(begun))]
    # Few images, so that a prompt needs what another one's image was evicted for.
    few = st.lists(st.tuples(WHICH, SIZES), min_size=3, max_size=4, unique=True)
    items = draw(few) if images else []
    pictures = draw(st.lists(albums(items), min_size=1, max_size=3)) if images else [()]
    if images and draw(st.integers(0, 2)) == 0:
        pictures = [*pictures, *draw(moved(pictures[0]))]
    room = draw(encoder_room([size for _, size in items], pictures)) if images else 0
    submit: st.SearchStrategy[Action] = st.builds(
        lambda prompt, *more: SubmitRequest(*prompt[:2], *more, *prompt[2:]),
        st.sampled_from(prompts),
        st.integers(1, 4),
        st.sampled_from(draw(st.sampled_from(BESIDE))),
        st.sampled_from((False,) * 9 + (True,)),
        st.sampled_from(pictures),
        st.sampled_from([(), (), (), *asks]),
    )
    # Where nothing is lost, what was stored must be offered again.
    loses = forgets and draw(st.booleans())
    actions = draw(rounds(submit, engine.overlaps, loses, restarts))
    recompute = draw(st.booleans())
    copies = Copies(draw(st.booleans()), draw(st.integers(0, 3)))
    beside: list[Options] = []
    if bool(options) and draw(st.booleans()):
        beside = draw(st.lists(st.sampled_from(options), min_size=1, max_size=2, unique=True))
    return ConnectorPlan(
        engine,
        tuple(actions),
        "recompute" if recompute else "fail",
        copies,
        accepted=draw(st.integers(0, drafts)) if drafts else 0,
        encoder_tokens=room,
        **layers.of_plan,
        clock_ahead=draw(st.sampled_from((0, 0, 0, 100, 100, -100))) if paired else 0,
        replicas=replicas and draw(st.integers(0, 5)) == 0,
        stops=draw(st.sampled_from((False,) * 9 + (True,))),
        first_runner=draw(st.booleans()),
        options=tuple(pair for each in beside for pair in each),
        unlike=draw(st.sampled_from(("",) * 9 + tuple(unlike))) if unlike else "",
    )


@st.composite
def later_turns(
    draw: st.DrawFn, begun: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int, int]]:
    """In a third of the plans, draw prompts that continue after an answer to one of the `begun`
    prompts. Each has the family of the prompt, the number of all tokens, the position of the
    answer, and the number of its tokens. The user's next part may be empty."""
    turns: list[tuple[int, int, int, int]] = []
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 1, 2)))):
        family, tokens = draw(st.sampled_from(begun))
        room = PROMPT_TOKENS_MAX - tokens
        if room:
            answer = draw(st.integers(1, min(4, room)))
            more = draw(st.integers(0, min(6, room - answer)))
            turns.append((family, tokens + answer + more, tokens, answer))
    return turns


@st.composite
def albums(draw: st.DrawFn, items: Sequence[tuple[int, int]]) -> tuple[Image, ...]:
    """Draw the images of a prompt in their order, from these `items` (which image, its tokens),
    with or without tokens between them."""
    images: list[Image] = []
    at = draw(st.integers(0, 6))
    for _ in range(draw(st.integers(1, 3))):
        which, size = draw(st.sampled_from(items))
        images.append(Image(which, at, size))
        at += size + draw(st.sampled_from((0, 0, 1, 2, 3)))
    return tuple(images)


@st.composite
def moved(draw: st.DrawFn, album: tuple[Image, ...]) -> tuple[tuple[Image, ...], ...]:
    """Draw the images of two prompts with equal tokens. Placeholders of no image stand before the
    first image of the one prompt, and behind that image in the other."""
    bare = draw(st.integers(1, 2))
    first, *others = album
    first = replace(first, at=first.at + bare, before=bare)
    rest = tuple(replace(each, at=each.at + bare) for each in others)
    return (first, *rest), (replace(first, at=first.at - bare, before=0, behind=bare), *rest)


@st.composite
def encoder_room(
    draw: st.DrawFn, sizes: Sequence[int], pictures: Sequence[tuple[Image, ...]]
) -> int:
    """Draw the number of tokens in the encoder cache, for images of these sizes. It always has room
    for any one image, and often just enough, or one token too few, for two images that follow each
    other in a prompt."""
    if draw(st.booleans()):
        return draw(st.integers(IMAGE_TOKENS_MAX, 3 * IMAGE_TOKENS_MAX))
    pairs = [one.tokens + two.tokens for album in pictures for one, two in pairwise(album)]
    together = draw(st.sampled_from(pairs or [sum(sizes[:2])]))
    return max(*sizes, together - draw(st.integers(0, 1)))


@st.composite
def rounds(
    draw: st.DrawFn,
    submit: st.SearchStrategy[Action],
    overlaps: bool,
    forgets: bool,
    restarts: Sequence[Another],
) -> list[Action]:
    """Draw actions in rounds: requests arrive, the engine may finish its work and lose its own
    cache or be started again, and then the same prompts may arrive again, so that they are
    loaded."""
    step = st.builds(RunSteps, st.integers(1, 3))
    rare: list[st.SearchStrategy[Sequence[Action]]] = [
        st.tuples(st.builds(AbortRequest, st.integers(0, 3))),
        st.tuples(st.builds(AbortRequest, st.integers(0, 3))),
        st.tuples(st.builds(ResetCache, st.booleans(), st.booleans())),
        st.tuples(st.builds(PauseEngine, st.booleans()), step, st.just(ResumeEngine())),
    ]
    if forgets:
        rare += [
            st.tuples(st.just(Forget())),
            st.tuples(st.builds(Fail, st.integers(1, 3), st.booleans())),
        ]
    if overlaps:
        rare.append(st.tuples(st.just(ReceiveOutput())))
    submits = st.tuples(submit, submit)
    turn = st.one_of(st.tuples(submit), st.tuples(submit, step), st.tuples(step), *rare)
    again_loaded: list[Action] = [Drain(), ResetCache()]
    ends: tuple[list[Action], ...] = (
        [],
        [ResetCache()],
        [Drain(), ResetCache(connector=True)],
        again_loaded,
        again_loaded,
    )
    actions: list[Action] = []
    before: list[Action] = []
    for _ in range(draw(st.integers(1, ROUNDS_MAX))):
        again = before if draw(st.booleans()) else []
        turns = [draw(submits), *draw(st.lists(turn, max_size=TURNS_MAX))]
        before = [action for each in turns for action in each]
        ended = draw(st.sampled_from(ends))
        if restarts and draw(st.integers(0, 3)) == 0:
            ended = [Restart(draw(st.sampled_from(restarts)))]
        actions += [*again, *before, *ended]
    return actions
