"""Random plans of start-ups."""

from random import Random
from typing import Literal

from msgspec.structs import replace

from kvproof.model.plans.engine import KEEP_ALL, EnginePlan, Layer
from kvproof.model.plans.messages import LENGTH
from kvproof.model.plans.random_loops import STRUCTURED, random_messages, sleeping, structured

SINKS = 0.03
"""The share of plans whose layers of full attention also read sinks, which no request has."""

GOES_ON = 0.3
"""The share of plans in which clients send messages."""

CONNECTED = 0.4
"""The share of these whose engine transfers KV."""


def random_start(seed: int) -> EnginePlan:
    """The plan of a start-up of this seed. Most plans have few features: a model of one or two
    kinds of layers, with pages of one size. In some, clients send messages to the started
    engine."""
    r = Random(seed)
    block = r.choice((2, 3, 4, 8))
    shape = {"heads": r.choice((1, 2, 3)), "width": r.choice((4, 6)), "bytes": r.choice((2, 4))}
    family = r.choice((*("full", "window", "chunked", "mla", "mamba") * 2, "two windows", "three"))
    own = {
        "full": ["full"],
        "mla": r.choice((["mla"], ["mla", "window"], ["mla", "mamba"])),
        "two windows": ["full", "window", "window"],
        "three": ["full", "window", "mamba"],
    }.get(family, ["full", family])
    stages = r.choice((1, 1, 1, 2, 3))
    windows = {family: r.choice((3, 4, 6, 9)) for family in ("a", "b", "c")}
    prefix_caching = r.random() < 0.5
    max_model_len = r.choice((r.randint(5, 24), r.randint(16, 60)))
    mixed = r.choice(("no", "no", "no", "precision", "heads", "blocks", "odd"))
    if family == "chunked" and mixed != "no":  # vLLM has no hits in chunks of other blocks
        prefix_caching = False
    kinds: list[Layer] = []
    for index, kind in enumerate(own):
        sized = dict(shape)
        if index and mixed == "precision":
            sized["bytes"] = r.choice((1, 2, 4))
        if index and mixed == "heads":
            sized["heads"] = shape["heads"] * r.choice((1, 2))
        if index and mixed == "odd":
            sized["width"] = r.choice((5, 7, 10))
        tokens = block * (2 if index and mixed == "blocks" and r.random() < 0.5 else 1)
        window = windows["abc"[index]] if kind == "window" else 0
        if kind == "chunked":  # of whole blocks, as in models
            window = 2 * tokens * r.choice((1, 2))
        if kind == "mamba":
            tokens = tokens * r.choice((1, 1, 1, 2, 3)) if prefix_caching else max_model_len
            sized["width"] = r.choice((1, 2, sized["width"], 2 * block * sized["width"]))
        if kind == "mla":
            sized["heads"] = 1
        padded = kind == "mamba" and r.random() < 0.7
        kinds.append(Layer(kind, tokens, **sized, window=window, padded=padded))  # type: ignore
    counts = [r.choice((1, 1, 2, 2, 3, 4)) for _ in kinds]
    if stages > 1:
        counts = [stages * r.choice((1, 2)) for _ in kinds]
    each = [layer for layer, count in zip(kinds, counts, strict=True) for _ in range(count)]
    if r.random() < 0.5:
        r.shuffle(each)
    seen: dict[Layer, int] = {}
    layers = []
    for layer in each:
        place = seen[layer] = seen.get(layer, -1) + 1
        stage = place % stages if place < stages or r.random() < 0.7 else r.randrange(stages)
        layers.append(replace(layer, stage=stage))
    ample = r.random() < 0.35
    plan = EnginePlan(
        layers=tuple(layers),
        max_model_len=max_model_len,
        chunk_tokens=r.choice((4, 8, 16, 16, 64)),
        answer_tokens=r.randint(1, 3),
        ranks=r.choice((1, 1, 2)),
        overlaps=r.random() < 0.3,
        prefix_caching=prefix_caching,
        hybrid=r.random() < 0.85,
        layout=r.choice(("LBNHC", "LBHNC", "BLNHC", "BLHNC")),
        counted_from="ample" if ample else "need",
        blocks=r.randint(0, 3) if ample else r.choice((-2, -1, -1, 0, 0, 0, 1, 1, 2, 5, 40)),
        odd_bytes=r.choice((0, 0, 1, 7, 50)),
        more=r.choice((0, 0, 1, 3, 100)),
        richer=r.randrange(4),
        override=r.random() < 0.2,
        auto=r.random() < 0.3,
    )
    hits_in_chunks = family == "chunked" and prefix_caching
    if r.random() < 0.2 and not hits_in_chunks:  # hidden states of layers: a token is rather wide
        heads = r.choice((1, 2, 3, 5))
        hidden = replace(kinds[0], kind="hidden", block=block, heads=heads, stage=stages - 1)
        plan = replace(plan, layers=(*plan.layers, hidden))
    plan = _rarer(r, plan)
    if Random(f"{seed} sinks").random() < SINKS:
        sinks = (replace(e, kind="sink") if e.kind == "full" else e for e in plan.layers)
        plan = replace(plan, layers=tuple(sinks))
    return going_on(Random(f"{seed} goes on"), plan)


def going_on(r: Random, plan: EnginePlan) -> EnginePlan:
    """The plan, in some cases with messages to the engine that has started. Their requests are not
    longer than its largest."""
    length = min(LENGTH, plan.max_model_len)
    if r.random() > GOES_ON or length < LENGTH // 2:
        return plan
    connected = r.random() < CONNECTED
    actions = random_messages(r, length, connected=connected)
    if r.random() < STRUCTURED:
        actions = structured(r, actions)
    recompute = connected and r.random() < 0.3
    actions = sleeping(r, actions)
    return replace(plan, actions=actions, connected=connected, recompute=recompute)


def _rarer(r: Random, plan: EnginePlan) -> EnginePlan:
    """The plan, or a similar one with a feature that few models have: latent attention in windows,
    blocks on several ranks, drafts, all states, or full attention beside layers without V."""
    what = r.choice((*("",) * 6, "latent", "latent", "ranks", "drafts", "states", "index"))
    if what == "latent":
        return replace(plan, layers=_latent(r, plan), prefix_caching=r.random() < 0.5)
    if what in ("ranks", "index"):  # vLLM has no windows and no chunks on several ranks
        layers = tuple(each for each in plan.layers if each.kind in KEEP_ALL)
        first = replace(layers[0], kind="full")
        index = replace(first, kind="mla", heads=1, width=r.choice((2, first.width)))
        if what == "index" or r.random() < 0.5:
            layers = (*layers, first, index)
        shards = r.choice((2, 2, 4)) if what == "ranks" else 1
        return replace(plan, layers=layers, shards=shards, ranks=max(plan.ranks, shards))
    if what == "states":
        layers = tuple(each for each in plan.layers if each.kind in KEEP_ALL)
        first = replace(layers[0], kind="mamba", padded=True)
        states = [replace(first, stage=stage) for stage in range(plan.stages)] * r.choice((1, 2))
        drafts = r.choice((0, 1, 2, 3)) * (plan.stages == 1)
        plan = replace(plan, layers=(*layers, *states), prefix_caching=True, drafts=drafts)
        return replace(plan, every_state=r.random() < 0.7)
    if what == "drafts" and plan.stages == 1:  # not every release has drafts on several stages
        return replace(plan, drafts=r.choice((1, 2, 3)))
    return plan


LATENT: tuple[tuple[tuple[int, Literal[1, 2, 4]], ...], ...] = (
    ((6, 4),),
    ((4, 4), (6, 4)),
    ((4, 4), (12, 4)),
    ((4, 1), (12, 2)),
)
"""The widths and the bytes of a number of the latent layers of a model."""


def _latent(r: Random, plan: EnginePlan) -> tuple[Layer, ...]:
    """Layers of latent attention. Some have two widths or precisions. Some have windows, whose
    tokens are not larger; a few models have only windows."""
    block, stages = plan.layers[0].block, plan.stages
    if r.random() < 0.2:
        alike = Layer("window mla", block, width=r.choice((4, 6)))
        windows = [r.choice((3, 4, 6, 9)) for _ in range(r.choice((1, 2)))]
        layers = [replace(alike, window=each) for each in windows] * (stages * r.choice((1, 2)))
        return tuple(replace(layer, stage=at % stages) for at, layer in enumerate(layers))
    sizes = r.choice(LATENT)
    kinds = [Layer("mla", block, width=w, bytes=b) for w, b in sizes for _ in range(stages)]
    largest = max(layer.content_bytes for layer in kinds)
    for window in {r.choice((3, 4, 6, 9)) for _ in range(r.choice((1, 1, 2)))}:
        size = r.choice((2, 4, kinds[-1].width)), r.choice((kinds[0].bytes, kinds[-1].bytes, 2))
        narrow = Layer("window mla", block, width=size[0], bytes=size[1], window=window)
        if narrow.content_bytes <= largest:
            kinds += [narrow] * (stages * r.choice((1, 2, 3)))
    return tuple(replace(layer, stage=at % stages) for at, layer in enumerate(kinds))
