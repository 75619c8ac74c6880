"""Plans that Hypothesis draws: engines of every kind that a connector takes, and traffic in which
prompts share beginnings, requests are aborted, and the engine's own cache is emptied."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, product

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group
from kvproof.model.drawing import of_the_seed
from kvproof.model.plans.connector import (
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
    Options,
    PauseEngine,
    ResetCache,
    Restart,
    ResumeEngine,
    Rows,
    RunSteps,
    Stand,
    SubmitRequest,
    Who,
    bare,
)

HIDDEN: tuple[ConnectorPlan, ...] = tuple(
    bare(*groups, hidden=True)
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

SPREAD: tuple[ConnectorPlan, ...] = (
    bare(Group("full", 8), ranks=2),
    bare(Group("full", 8), ranks=2, latent=True),
    bare(Group("full", 8), Group("mamba", 8), ranks=2, every_state=True),
    bare(Group("full", 4), Group("mamba", 4), ranks=4, tensor=True),
)
"""Cache groups on several ranks. Beside attention blocks that lie on several, each state is cached:
where the last one of a step alone is, a Mamba block has the tokens of an attention block on one
rank (`cache_config.block_size`, at which vLLM ends steps), and narrower ones than those of all
ranks are not modelled. The model has two KV
heads: two of four tensor ranks have one of them each, and each rank has states of its own."""


def unequal(ranks: Sequence[tuple[int, int]]) -> list[ConnectorPlan]:
    """The cache groups of a pair of engines on these numbers of ranks. Of the two KV heads, a rank
    has both, or one alone, or one together with another rank; latent attention has one head, which
    all ranks have. No two ranks have the same head of a state."""
    beside: tuple[tuple[Group, ...], ...] = (Group("window", 4, window=8),), (Group("mamba", 4),)
    spread = [(latent, p, d) for latent in (False, True) for p, d in ranks]
    alone = [(each, ()) for each in spread]
    return [
        bare(Group("full", 4), *more, ranks=d, tensor=True, prefill_ranks=p, latent=latent)
        for (latent, p, d), more in (*alone, *product(spread, beside))
    ]


FULL_ON_NARROW = bare(Group("full", 8), narrow="P")
NARROWER: tuple[ConnectorPlan, ...] = (
    FULL_ON_NARROW,
    replace(FULL_ON_NARROW, latent=True),
    *(replace(FULL_ON_NARROW, kernel_blocks=2, narrow=one) for one in ("P", "D")),
    bare(Group("full", 8), Group("window", 8, window=16), narrow="P"),
    bare(Group("full", 8), Group("mamba", 8), narrow="P"),
)
"""Cache groups of a pair of engines, one of which has narrower blocks. Where D reads from wider
blocks, the blocks of a kernel are equal."""


BUFFERED: tuple[ConnectorPlan, ...] = tuple(
    bare(*groups, latent=latent, kernel_blocks=kernel_blocks, buffered=True)
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
BEYOND = "", "", "", "embeddings", "images"
"""What prompts have beside token ids, where a connector is not driven for it alone."""

CALLS = st.sampled_from(("", "look-up", "get", "put"))
VALUES = st.one_of(st.none(), st.integers(0, 3))

STANDS_STEPS = (1, 4, 12, 100)
"""For how many steps a loop stands. No engine waits for an answer as long as the last."""

LOOK_ALIKES_MAX = 4
"""Hypothesis draws so many plans for one at most: it often repeats parts of earlier ones."""

ANSWER_BEYOND = 2
"""Of the longest answers, so many tokens are beyond a block."""

TURNS_MAX = 8
ROUNDS_MAX = 4


def draw_plans(
    subject: TestedConnector,
    kinds: Sequence[ConnectorPlan],
    episodes: int,
    start: int,
    take: Callable[[ConnectorPlan], None],
    overlaps: bool = True,
) -> None:
    """Draw this number of plans (see `plans`), from the seed `start`, and take each. No two are
    look-alikes (`_shape`); there are fewer plans where no others are found. An exception of `take`
    ends the drawing, and is passed on."""
    drawn: set[object] = set()

    @seed(start)
    @settings(
        max_examples=episodes * LOOK_ALIKES_MAX,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(plans(subject, kinds, overlaps))
    def each(plan: ConnectorPlan) -> None:
        if len(drawn) == episodes:
            raise _Enough
        shape = _shape(plan)
        if shape in drawn:
            return
        take(plan)  # Hypothesis draws a plan whose exception ends the drawing once more
        drawn.add(shape)

    with of_the_seed(), suppress(_Enough):
        each()


class _Enough(Exception):
    """All plans are drawn."""


def _shape(plan: ConnectorPlan) -> object:
    """What look-alikes have in common: the cache groups, the tokens of a step, and the lengths of
    prompts and answers."""
    prompts = (each for each in plan.actions if isinstance(each, SubmitRequest))
    lengths = tuple((each.family, each.trunk, each.tokens, each.max_tokens) for each in prompts)
    return plan.kinds, plan.engine.groups, plan.engine.chunk_tokens, lengths


@st.composite
def plans(
    draw: st.DrawFn, subject: TestedConnector, kinds: Sequence[ConnectorPlan], overlaps: bool
) -> ConnectorPlan:
    """Draw plans for a connector and engines with the cache groups of one of these plans (`kinds`),
    with async scheduling if `overlaps`. The plans have what the connector takes beside plain
    requests: a memory that may lose its content and fail, images, demands, other clocks of workers,
    engines that are started again or are one of several replicas, options, and a P that is unlike
    D. Of the options, half of the plans have one or two."""
    # Between two engines, more at once has several known findings at work in a plan, and none of
    # them alone explains it.
    alone = not (subject.pair or subject.has_peers)
    # Half of the plans have cache groups as most models have them.
    plain = [each for each in kinds if not each.odd] or kinds
    among = draw(st.sampled_from((plain, kinds)))
    alike = draw(st.sampled_from(sorted({each.kinds for each in among})))
    layers = draw(st.sampled_from([each for each in among if each.kinds == alike]))
    chosen = layers.engine.groups
    size = max(group.block_size for group in chosen)
    longest = PROMPT_TOKENS_MAX + size + ANSWER_BEYOND
    blocks = 1 + sum(-(-longest // group.block_size) for group in chosen)
    attention = all(group.attention for group in chosen)
    ngrams = 2 * (attention and draw(st.integers(0, 5)) == 0)
    drafts = layers.drafts_of_layers or ngrams
    engine = EngineConfig(
        "E",
        chosen,
        # In a wide pool, what windows give up is not used again before it is stored.
        num_blocks=blocks + draw(st.sampled_from((0, 1, 2, 3, 4, 4, blocks, blocks))),
        chunk_tokens=draw(st.sampled_from((size + 1, 4 * size, 64))),
        steps_in_flight=2 if overlaps and not ngrams and draw(st.booleans()) else 1,
        drafts=drafts,
        match_unit=layers.engine.match_unit,
        retention=layers.engine.retention,
        prefix_caching=layers.engine.prefix_caching,
        policy="priority" if alone and draw(st.integers(0, 2)) == 0 else "fcfs",
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
    prompt = st.builds(SubmitRequest, family, tokens)
    begun = draw(st.lists(prompt, min_size=1, max_size=4, unique=True))
    longer = size - 1, size, size + 1, size + ANSWER_BEYOND
    answers = st.sampled_from((1, 1, 2, 3, 4, *longer) if alone else (1, 2, 3, 4))
    edges = {size, 2 * size, *(group.window for group in chosen)} - {0}
    parting = siblings(sorted(edges))
    equal = st.sampled_from(begun).map(lambda each: [each] * 3)
    burst = draw(st.one_of(parting, parting, equal)) if alone else begun[:2]
    prompts = [*begun, *draw(later_turns(begun, answers))]
    # Few images, so that a prompt needs what another one's image was evicted for.
    few = st.lists(st.tuples(WHICH, SIZES), min_size=3, max_size=4, unique=True)
    items = draw(few) if subject.has_images else []
    pictures = draw(st.lists(albums(items), min_size=1, max_size=3)) if subject.has_images else [()]
    if subject.has_images and draw(st.integers(0, 2)) == 0:
        pictures = [*pictures, *draw(moved(pictures[0]))]
    room = draw(encoder_room([size for _, size in items], pictures)) if subject.has_images else 0
    arrives = partial(
        st.builds,
        replace,
        max_tokens=answers,
        beside=st.sampled_from(draw(st.sampled_from(BESIDE))),
        computes_all=st.sampled_from((False,) * 9 + (True,)),
        images=st.sampled_from(pictures),
        asks=st.sampled_from([(), (), (), *subject.demands]),
        priority=st.sampled_from((0, 1, 1)) if engine.by_priority else st.just(0),
    )
    submit = arrives(st.sampled_from([*prompts, *burst]))
    submits = st.one_of(
        st.tuples(submit, submit), st.tuples(*(arrives(st.just(each)) for each in burst))
    )
    idle = Drain() if alone else RunSteps()
    # Where nothing is lost, what was stored must be offered again.
    loses = subject.forgets and draw(st.booleans())
    stands = subject.loops if subject.loops and draw(st.integers(0, 2)) == 0 else ()
    actions = draw(rounds(submit, submits, idle, engine.overlaps, loses, stands, subject.restarts))
    recompute = draw(st.booleans())
    copies = Copies(draw(st.booleans()), draw(st.integers(0, 3)))
    beside: list[Options] = []
    if bool(subject.options) and draw(st.booleans()):
        beside = draw(
            st.lists(st.sampled_from(subject.options), min_size=1, max_size=2, unique=True)
        )
    # Last, so that what is drawn above is the same without them.
    beyond = "" if subject.has_images or subject.hidden else draw(st.sampled_from(BEYOND))
    if beyond == "embeddings":
        actions = draw(with_embeddings(actions, size))
    elif beyond == "images" and layers.ranks == 1 and not layers.prefill_ranks:
        actions, room = draw(with_images(actions))
    return replace(
        layers,
        engine=engine,
        actions=tuple(actions),
        load_failure="recompute" if recompute else "fail",
        copies=copies,
        accepted=draw(st.integers(0, drafts)) if drafts else 0,
        encoder_tokens=room,
        # vLLM refuses an engine with such images whose steps are shorter than one of them, and one
        # whose steps must end at the ends of blocks, which may be inside an image.
        uncut=0 < max((size for _, size in items), default=0) < engine.chunk_tokens
        and not any(group.aligned for group in engine.groups)
        and draw(st.booleans()),
        clock_ahead=draw(st.sampled_from((0, 0, 0, 100, 100, -100))) if subject.pair else 0,
        replicas=subject.replicas and draw(st.integers(0, 5)) == 0,
        stops=draw(st.sampled_from((False,) * 9 + (True,))),
        first_runner=draw(st.booleans()),
        options=tuple(pair for each in beside for pair in each),
        unlike=draw(st.sampled_from(("",) * 9 + subject.unlike)) if subject.unlike else "",
        without_events=draw(st.integers(0, 3)) == 0,
    )


@st.composite
def with_embeddings(draw: st.DrawFn, actions: Sequence[Action], size: int) -> list[Action]:
    """Draw embeddings for some prompts. All have them at the same positions, which are one or two
    blocks of `size` tokens or less, and in some plans some do not use them."""
    at, tokens = draw(st.sampled_from((0, 1, size))), draw(st.sampled_from((1, size, 2 * size)))
    rare = (Rows(at, tokens, used=False),) if draw(st.integers(0, 2)) == 0 else ()
    kinds = st.sampled_from((None, Rows(at, tokens), Rows(at, tokens), *rare))
    return [
        replace(each, rows=draw(kinds)) if isinstance(each, SubmitRequest) else each
        for each in actions
    ]


@st.composite
def with_images(draw: st.DrawFn, actions: Sequence[Action]) -> tuple[list[Action], int]:
    """Draw images for some prompts, and the number of tokens in the encoder cache."""
    items = draw(st.lists(st.tuples(WHICH, SIZES), min_size=2, max_size=3, unique=True))
    pictures = [(), *draw(st.lists(albums(items), min_size=1, max_size=2))]
    room = draw(encoder_room([size for _, size in items], pictures))
    drawn = st.sampled_from(pictures)
    return [
        replace(each, images=draw(drawn)) if isinstance(each, SubmitRequest) else each
        for each in actions
    ], room


@st.composite
def siblings(draw: st.DrawFn, edges: Sequence[int]) -> list[SubmitRequest]:
    """Draw three prompts that part inside a block, at an edge of a block or of a window, or beside
    it, with a tail of one token or more each."""
    edge = draw(st.sampled_from(edges))
    parts = draw(st.sampled_from((edge - 1, edge, edge + 1, edge + edge // 2)))
    trunk = min(max(parts, 1), PROMPT_TOKENS_MAX)
    tails = st.sampled_from((1, edge - 1, edge, edge + 1, 2 * edge))
    return [
        SubmitRequest(family, min(trunk + draw(tails), PROMPT_TOKENS_MAX), trunk=trunk)
        for family in (0, 1, 2)
    ]


@st.composite
def later_turns(
    draw: st.DrawFn, begun: Sequence[SubmitRequest], answers: st.SearchStrategy[int]
) -> list[SubmitRequest]:
    """In a third of the plans, draw prompts that continue after one of these `answers`, or a part
    of it, to one of the `begun` prompts. The user's next part may be empty."""
    turns: list[SubmitRequest] = []
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 1, 2)))):
        first = draw(st.sampled_from(begun))
        room = PROMPT_TOKENS_MAX - first.tokens
        if room:
            answer = min(draw(answers), room)
            tokens = first.tokens + answer + draw(st.integers(0, min(6, room - answer)))
            turns.append(replace(first, tokens=tokens, turn=first.tokens, answer=answer))
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
    submits: st.SearchStrategy[Sequence[Action]],
    idle: Action,
    overlaps: bool,
    forgets: bool,
    stands: Sequence[Who],
    restarts: Sequence[Another],
) -> list[Action]:
    """Draw actions in rounds: requests arrive, the engine may finish its work and lose its own
    cache or be started again, and then the same prompts may arrive again, so that they are
    loaded. What is done under a pause is `idle` or some steps."""
    step = st.builds(RunSteps, st.integers(1, 3))
    under_pause = st.one_of(step, st.just(idle))
    pause = st.builds(PauseEngine, st.booleans())
    rare: list[st.SearchStrategy[Sequence[Action]]] = [
        st.tuples(st.builds(AbortRequest, st.integers(0, 3))),
        st.tuples(submit, st.just(AbortRequest(-1))),  # it has no block yet (vllm#49146)
        st.tuples(st.builds(ResetCache, st.booleans(), st.booleans())),
        st.tuples(pause, under_pause, st.just(ResumeEngine())),
        st.tuples(submit, pause, submit, st.just(idle), st.just(ResumeEngine())),
    ]
    if forgets:
        rare += [
            st.tuples(st.builds(Forget, st.booleans())),
            st.tuples(st.builds(Fail, st.integers(1, 3), st.booleans(), CALLS, VALUES)),
        ]
    if stands:
        still = st.builds(Stand, st.sampled_from(stands), st.sampled_from(STANDS_STEPS))
        rare += [st.tuples(still), st.tuples(submit, step, still)]
    if overlaps:  # more steps, because an output arrives one step later
        rare.append(st.tuples(st.just(RunSteps())))
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
            if forgets and draw(st.booleans()):  # what only the memory has is loaded in part
                ended.append(Fail(1, draw(st.booleans()), "get", draw(st.integers(1, 3))))
        actions += [*again, *before, *ended]
    return actions
