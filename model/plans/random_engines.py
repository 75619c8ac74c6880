"""Random plans of engines: layers, workers and their memory, and messages of clients.

One value of each parameter is drawn from a table. What vLLM refuses beside something else is left
out, so that most plans start an engine.
"""

from collections.abc import Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, Literal

from msgspec.structs import replace

from kvproof.model.plans.connector import Copies
from kvproof.model.plans.engine import (
    KEEP_ALL,
    OF_KIT,
    Drafter,
    EnginePlan,
    Kind,
    Layer,
    given,
)
from kvproof.model.plans.messages import LENGTH, Action, Reset, Send
from kvproof.model.plans.part import drawn
from kvproof.model.plans.random_messages import (
    random_messages,
    to_pool,
    with_burst,
    with_forgotten,
    with_priorities,
    with_repeats,
    with_session,
    with_stops,
    without_loops,
)

PARAMETERS: dict[str, tuple[Any, ...]] = {
    # Whether the number of blocks is given or counted, and whether clients send messages.
    "given": (True, False),
    "messages": (True, True, False),
    "connected": (True, True, True, False, False),
    "recompute": (True, False, False),
    # The model: its kinds of layers, and what few models have.
    "kinds": (
        *[("full",), ("full", "window"), ("full", "chunked"), ("full", "mamba")] * 2,
        *[("mla",), ("mla", "window"), ("mla", "mamba")],
        *[("full", "window", "window"), ("full", "window", "mamba")],
    ),
    "rare": (*("",) * 7, "latent", "latent", "ranks", "index", "states"),
    "hidden": (*(0,) * 16, 1, 2, 3, 5),
    "sinks": (True, *(False,) * 32),
    "block": (2, 3, 4, 4, 8),
    "heads": (1, 2, 3),
    "width": (4, 6),
    "bytes": (2, 4),
    "unlike": ("", "", "", "precision", "heads", "blocks", "odd"),
    "shuffled": (True, False),
    "drafts": (*(0,) * 8, 1, 2, 3),
    # The engine, and its workers.
    "stages": (1, 1, 2, 2, 3),
    "ranks": (1, 1, 2),
    "shards": (2, 2, 4),
    "longer": (False, True),
    "fitted": (*(False,) * 3, True),
    "chunk_tokens": (4, 8, 16, 16, 32),
    "answer_tokens": (1, 2, 3),
    "overlaps": (False, True),
    "prefix_caching": (False, True, True, True),
    "hybrid": (*(True,) * 6, False),
    "layout": ("LBNHC", "LBHNC", "BLNHC", "BLHNC"),
    # The memory.
    "ample": (False, False, True),
    "from_need": (-2, -1, -1, 0, 0, 0, 1, 1, 2, 5, 40),
    "from_ample": (0, 1, 2, 3),
    "beyond": (0, 0, 2, 8, 30),
    "odd_bytes": (0, 0, 1, 7, 50),
    "more": (0, 0, 1, 3, 100),
    "richer": (0, 1, 2, 3),
    "override": (*(False,) * 4, True),
    # What a step serves, and how well it predicts.
    "requests": (4, 4, 4, 1, 2, 3),
    "by_priority": (*(False,) * 3, True),
    "misses": (0, 0, 1, 2, 3, 4),
}
"""By name: the values that are equally likely."""

POOLED = 9
"""Of so many plans, one has a model that pools, unless it has a store."""

RINGED = 13
"""Of so many plans, one has rings if vLLM's own start-up plans its KV caches."""

REFERRED = 11
"""Of so many plans, one has reference windows alone if vLLM's own start-up plans its KV caches."""

SILENT, UNCOUNTED = 4, 17
"""Of so many plans, one has no KV events, and one no statistics."""

STORED = 5
"""Of so many plans, one has a store if clients send messages."""

SMALLEST = 4
"""The smallest budget of a step beside the slots of all its drafts, in tokens. Releases before
vllm#51725 refuse a smaller one."""

DRAFTERS: tuple[Drafter, ...] = (
    *("ngram", "ngram", "draft model", "eagle"),
    *("parallel draft model", "draft model", "parallel eagle"),
)
"""The drafters of plans, in turn."""

WINDOWS = 3, 4, 6, 9
"""The windows of layers, in tokens."""

OTHERWISE: dict[str, Kind] = {"chunked": "window"}
"""The kinds of layers that an engine with a store has in place of others."""

GIVEN, COUNTED = {"given": True}, {"given": False}
"""What plans have in common whose number of blocks is given, and those of which it is counted."""


def random_engine(
    seed: int, common: Mapping[str, Any] | None = None, store: str | None = None
) -> EnginePlan:
    """The plan of this seed; of plans that have parameters in `common`, with these, and with this
    `store` or, where it is empty, none. Most plans have few features: a model of one or two kinds
    of layers, and a few requests."""
    r = Random(seed)
    of_plan = drawn(r, {**PARAMETERS, **{name: (v,) for name, v in (common or {}).items()}})
    of_plan.wider = (1, 1, 1, 2, 3)
    stored = seed % STORED == STORED - 1 if store is None else bool(store)
    if stored:
        _take_plain_layers(of_plan)
    refers = getattr(of_plan, "refers", seed % REFERRED == REFERRED - 1)
    of_plan.refers = refers and not (of_plan.given or stored)
    if of_plan.refers:  # a model with such layers has no others
        of_plan.kinds, of_plan.rare, of_plan.hidden = ("rswa",), "", 0
    _exclude(of_plan)
    rings = getattr(of_plan, "rings", seed % RINGED == RINGED - 1)
    of_plan.rings = rings and not (stored or of_plan.refers) and _takes_rings(of_plan)
    max_model_len = LENGTH
    if not of_plan.given:
        max_model_len = r.randint(16, 60) if of_plan.longer else r.randint(5, 24)
    length = min(LENGTH, max_model_len)
    sends = of_plan.given or (of_plan.messages and length >= LENGTH // 2)
    connected = sends and of_plan.connected
    actions = random_messages(r, length, connected=connected) if sends else ()
    actions = with_repeats(actions, seed, length)
    edges = [n for n in (*range(of_plan.block, length, of_plan.block), *WINDOWS) if n < length]
    actions = with_burst(actions, seed, length, edges or [1])
    if of_plan.by_priority:
        actions = with_priorities(actions, seed)
    thinks = any(isinstance(each, Send) and each.thinks for each in actions)
    if of_plan.stages == 1 and thinks and not stored:
        of_plan.drafts = of_plan.drafts or r.choice((0, 1, 2))  # reasoning may end inside a step
    drafter = getattr(of_plan, "drafter", DRAFTERS[seed % len(DRAFTERS)])
    if "eagle" in drafter and "chunked" in of_plan.kinds:  # vLLM's own start-up never has both
        drafter = "ngram"
    # With a smaller budget, a request that was hit waits for ever: `padding_has_no_room`.
    if drafter not in ("ngram", "eagle"):  # drafts take slots of the budget
        slots = of_plan.drafts * of_plan.requests
        of_plan.chunk_tokens = max(of_plan.chunk_tokens + of_plan.drafts, SMALLEST + slots)
    of_engine = {
        "drafts": of_plan.drafts,
        "chunk_tokens": of_plan.chunk_tokens,
        "overlaps": of_plan.overlaps,
        "prefix_caching": of_plan.prefix_caching,
        "connected": connected,
        "recompute": connected and of_plan.recompute,
        "actions": actions,
    }
    if of_plan.given:
        plan = given(
            block=min(of_plan.block, 4),
            more=of_plan.beyond,
            window=5 * ("window" in of_plan.kinds),
            stages=of_plan.stages,
            fitted=of_plan.fitted,
            **of_engine,
        )
    else:
        plan = _planned(r, of_plan, max_model_len, of_engine)
    plan = replace(
        plan,
        requests=of_plan.requests,
        by_priority=of_plan.by_priority,
        without_events=plan.prefix_caching
        and getattr(of_plan, "without_events", seed % SILENT == SILENT - 1),
        without_statistics=not stored
        and getattr(of_plan, "without_statistics", seed % UNCOUNTED == UNCOUNTED - 1),
        drafter=drafter if plan.drafts else "ngram",
        misses=of_plan.misses * bool(plan.drafts),
    )
    if stored:
        plan = with_store(plan, seed, STORES if store is None else (store,))
    elif plan.overlaps or not plan.drafts:  # findings/drafts_beyond_the_answer, wrong in 0.32.0
        plan = replace(plan, actions=with_session(plan.actions, seed, length))
    if getattr(of_plan, "pools", seed % POOLED == POOLED - 1) and not plan.store:
        plan = replace(plan, pools=True, connected=False, recompute=False)
        plan = replace(plan, drafts=0, drafter="ngram", misses=0)
        return replace(plan, actions=to_pool(plan.actions, seed, length))
    actions = with_stops(plan.actions, seed, bool(plan.drafts and plan.overlaps))
    actions = without_loops(actions, seed)
    return replace(plan, actions=actions if plan.store else with_forgotten(actions, seed))


def _planned(
    r: Random, of_plan: SimpleNamespace, max_model_len: int, of_engine: Mapping[str, Any]
) -> EnginePlan:
    """A plan whose KV caches vLLM's own start-up plans."""
    return EnginePlan(
        layers=_layers(r, of_plan, max_model_len),
        max_model_len=max_model_len,
        answer_tokens=max_model_len // 2 if of_plan.refers else of_plan.answer_tokens,
        ranks=of_plan.ranks,
        hybrid=of_plan.hybrid,
        layout=of_plan.layout,
        counted_from="ample" if of_plan.ample else "need",
        blocks=of_plan.from_ample if of_plan.ample else of_plan.from_need,
        odd_bytes=of_plan.odd_bytes,
        more=of_plan.more,
        richer=of_plan.richer,
        override=of_plan.override,
        auto=of_plan.fitted,
        shards=of_plan.shards,
        every_state=of_plan.rare == "states",
        **of_engine,
    )


def _take_plain_layers(of_plan: SimpleNamespace) -> None:
    """Draw an engine that takes a store (`EnginePlan.plain`)."""
    plain = (kind if kind in OF_KIT else OTHERWISE.get(kind, "full") for kind in of_plan.kinds)
    of_plan.kinds = tuple(dict.fromkeys(plain))
    of_plan.connected = of_plan.sinks = False
    of_plan.stages = of_plan.ranks = of_plan.shards = 1
    of_plan.drafts = of_plan.hidden = 0
    of_plan.rare = of_plan.unlike = ""
    of_plan.bytes = 4
    of_plan.wider = (1,)
    # Without a prefix cache, a state's block has a whole request, which no store takes.
    of_plan.prefix_caching = of_plan.prefix_caching or "mamba" in of_plan.kinds


def _exclude(of_plan: SimpleNamespace) -> None:
    """Leave out what vLLM refuses beside something else."""
    if of_plan.rare in ("ranks", "index", "states"):  # no windows and no chunks on several ranks
        of_plan.kinds = tuple(kind for kind in of_plan.kinds if kind in KEEP_ALL)
    if of_plan.rare == "index" or (of_plan.rare == "ranks" and of_plan.unlike):
        of_plan.kinds = "full", "mla"
    if of_plan.rare == "states":
        of_plan.kinds = *of_plan.kinds, "mamba"
        of_plan.prefix_caching = True
    if of_plan.sinks:
        of_plan.kinds = tuple("sink" if kind == "full" else kind for kind in of_plan.kinds)
    if "chunked" in of_plan.kinds and (of_plan.unlike or of_plan.hidden):
        of_plan.prefix_caching = False  # there are no hits in chunks of other blocks
    of_plan.shards = of_plan.shards if of_plan.rare == "ranks" else 1
    of_plan.ranks = max(of_plan.ranks, of_plan.shards)
    if of_plan.overlaps:  # kvproof's steps overlap on one stage alone
        of_plan.stages = 1
    if of_plan.stages > 1:  # not every release has drafts on several stages
        of_plan.drafts = 0


def _takes_rings(of_plan: SimpleNamespace) -> bool:
    """Whether an engine takes a ring beside these layers: its pages are as large as theirs, and it
    is on no rank of context parallelism. Groups of several stages have stages without a layer,
    where 0.32.0 makes pages for others: findings/explained/empty_stage_has_pages."""
    alike = of_plan.rare not in ("index", "latent") and not of_plan.unlike
    return of_plan.hybrid and of_plan.shards == of_plan.stages == 1 and alike


def _layers(r: Random, of_plan: SimpleNamespace, max_model_len: int) -> tuple[Layer, ...]:
    """The layers, on their stages. Each stage has a layer of each kind, and some have more."""
    stages = of_plan.stages
    if of_plan.rare == "latent":
        layers = _latent(r, of_plan.block, stages)
    else:
        layers = []
        for index in range(len(of_plan.kinds)):
            alike = _layer(r, of_plan, index, max_model_len)
            number = r.choice((1, 1, 2, 2, 3, 4)) if stages == 1 else stages * r.choice((1, 2))
            for place in range(number):
                moved = place >= stages and r.random() < 0.3
                stage = r.randrange(stages) if moved else place % stages
                layers.append(replace(alike, stage=stage))
        if of_plan.shuffled:
            r.shuffle(layers)
    if of_plan.hidden:  # a token is rather wide
        first = Layer("hidden", of_plan.block, of_plan.hidden, of_plan.width, of_plan.bytes)
        layers.append(replace(first, stage=stages - 1))
    if of_plan.rings:
        layers.append(Layer("ring", of_plan.block, of_plan.heads, of_plan.width, of_plan.bytes))
    return tuple(layers)


def _layer(r: Random, of_plan: SimpleNamespace, index: int, max_model_len: int) -> Layer:
    """The layer of the kind with this index. All but the first may be unlike it."""
    kind, unlike = of_plan.kinds[index], of_plan.unlike if index else ""
    block, heads, width, bytes_ = of_plan.block, of_plan.heads, of_plan.width, of_plan.bytes
    window = 0
    if unlike == "precision":
        bytes_ = r.choice((1, 2, 4))
    if unlike == "heads":
        heads *= r.choice((1, 2))
    if unlike == "odd":
        width = r.choice((5, 7, 10))
    if unlike == "blocks":
        block *= r.choice((1, 2))
    if kind == "window":
        window = r.choice(WINDOWS)
    if kind == "rswa":
        window = r.choice((1, 2, 3, 4))
    if kind == "chunked":  # of whole blocks, as in models
        window = 2 * block * r.choice((1, 2))
    if kind == "mla":
        heads = 1
    if of_plan.rare == "index" and kind == "mla":
        width = r.choice((2, width))
    if kind == "mamba" and of_plan.rare != "states":
        block = block * r.choice(of_plan.wider) if of_plan.prefix_caching else max_model_len
        width = r.choice((1, 2, width, 2 * of_plan.block * width))
    padded = kind == "mamba" and (of_plan.rare == "states" or r.random() < 0.7)
    return Layer(kind, block, heads, width, bytes_, window, padded)


LATENT: tuple[tuple[tuple[int, Literal[1, 2, 4]], ...], ...] = (
    ((6, 4),),
    ((4, 4), (6, 4)),
    ((4, 4), (12, 4)),
    ((4, 1), (12, 2)),
)
"""The widths and the bytes of a number of the latent layers of a model."""


def _latent(r: Random, block: int, stages: int) -> list[Layer]:
    """Layers of latent attention. Some have two widths or precisions. Some have windows, whose
    tokens are not larger; a few models have only windows."""
    if r.random() < 0.2:
        alike = Layer("window mla", block, width=r.choice((4, 6)))
        windows = [r.choice(WINDOWS) for _ in range(r.choice((1, 2)))]
        kinds = [replace(alike, window=each) for each in windows] * (stages * r.choice((1, 2)))
        return [replace(layer, stage=at % stages) for at, layer in enumerate(kinds)]
    sizes = r.choice(LATENT)
    kinds = [Layer("mla", block, width=w, bytes=b) for w, b in sizes for _ in range(stages)]
    largest = max(layer.content_bytes for layer in kinds)
    for window in {r.choice(WINDOWS) for _ in range(r.choice((1, 1, 2)))}:
        size = r.choice((2, 4, kinds[-1].width)), r.choice((kinds[0].bytes, kinds[-1].bytes, 2))
        narrow = Layer("window mla", block, width=size[0], bytes=size[1], window=window)
        if narrow.content_bytes <= largest:
            kinds += [narrow] * (stages * r.choice((1, 2, 3)))
    return [replace(layer, stage=at % stages) for at, layer in enumerate(kinds)]


STORES = (
    *("offloading", "offloading-small", "offloading-files"),
    *("simple-cpu", "lmcache", "multi-offloading-simple"),
)
"""Short names of connectors of the kit."""


def with_store(plan: EnginePlan, seed: int, stores: Sequence[str]) -> EnginePlan:
    """The plan with one of these stores; the plan itself where an engine of it takes none. Before
    half of its requests, the engine's own cache is reset, so that the store loads. No reset
    preempts requests: that ends loads of vLLM 0.32.0 (`findings/forced_reset_ends_offloading`).
    The kit accepts the drafts of a plan of its own."""
    if not (plan.plain and plan.actions):
        return plan
    r = Random(f"a store of {seed}")
    actions: list[Action] = []
    for action in plan.actions:
        if isinstance(action, Reset):
            action = replace(action, running=False)
        elif isinstance(action, Send) and r.random() < 0.5:
            actions.append(Reset(action.after))
            action = replace(action, after=r.choice((0, 0, 1, 3)))
        actions.append(action)
    return replace(
        plan,
        store=r.choice(stores),
        copies=Copies(r.random() < 0.5, r.choice((0, 0, 1, 2, 3))),
        recompute=r.random() < 0.5,
        actions=tuple(actions),
    )
