"""A plan for a start-up: the layers, the workers and their memory, as data. It is made from a seed,
printed, made smaller, kept in a file and started again."""

from random import Random
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

Kind = Literal["full", "window", "chunked", "mla", "window mla", "mamba", "hidden", "sink"]
Count = Annotated[int, Meta(ge=1, le=1 << 20)]

LAYERS_MAX = 24

KEEP_ALL: tuple[Kind, ...] = ("full", "mla", "hidden", "sink")
"""The kinds of layers that read all tokens."""

SINKS = 0.03
"""The share of plans whose layers of full attention also read sinks, which no request has."""

WINDOWS: tuple[Kind, ...] = ("window", "window mla")
"""The kinds of layers that read the last tokens alone."""


class Layer(Struct, frozen=True, forbid_unknown_fields=True):
    """A layer with a KV cache. Its blocks have `block` tokens. A token has `heads` vectors of
    `width` numbers for K, and as many for V (none for MLA, also in a window, and none for the
    hidden states that an engine keeps for its user); a number has `bytes`. A Mamba layer has a
    state of `heads` times `width` numbers; with `padded`, its page is as large as the largest of
    the attention layers, as vLLM's platforms set it. `window` are the tokens of a sliding window or
    of a local chunk. `stage` is the pipeline stage that has the layer."""

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


class StartupPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """The plan of a start-up. Each of the pipeline stages has `ranks` workers with equal layers.

    `blocks` says how much memory there is, in blocks beyond what one request of `max_model_len`
    tokens needs (the null block included): `need` is the number that a run with plenty of memory
    took, and `ample` is a bound that no engine has to exceed. Each worker has the memory of these
    blocks, and `odd_bytes` more, less than a block. The worker with the number `richer` (modulo the
    number of workers) has the memory of `more` further blocks. With `override`, the number is
    `num_gpu_blocks_override`, and memory is plenty. With `auto`, vLLM is asked to fit
    `max_model_len` to the memory.

    With several `shards`, the tokens of an attention block lie on that number of ranks in turn
    (decode context parallelism). In each step `drafts` tokens are predicted. With `every_state`, a
    Mamba layer keeps the state after each block, not only after the last block of a step."""

    layers: Annotated[tuple[Layer, ...], Meta(max_length=LAYERS_MAX)]
    max_model_len: Count
    chunk_tokens: Count
    answer_tokens: Count = 1
    ranks: Annotated[int, Meta(ge=1, le=4)] = 1
    overlaps: bool = False
    prefix_caching: bool = False
    hybrid: bool = True
    layout: str = "LBNHC"
    counted_from: Literal["need", "ample"] = "need"
    blocks: Annotated[int, Meta(ge=-64, le=1 << 20)] = 0
    odd_bytes: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    more: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    richer: Annotated[int, Meta(ge=0, le=15)] = 0
    override: bool = False
    auto: bool = False
    shards: Annotated[int, Meta(ge=1, le=4)] = 1
    drafts: Annotated[int, Meta(ge=0, le=4)] = 0
    every_state: bool = False

    @property
    def stages(self) -> int:
        """The number of pipeline stages."""
        return 1 + max((layer.stage for layer in self.layers), default=0)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the plan's layers, sorted."""
        return tuple(sorted({layer.kind for layer in self.layers}))

    def workers(self) -> list[dict[str, Layer]]:
        """The layers of each worker, by name."""
        return [
            {f"layers.{i}": layer for i, layer in enumerate(self.layers) if layer.stage == stage}
            for stage in range(self.stages)
            for _ in range(self.ranks)
        ]


def lines(plan: StartupPlan) -> list[str]:
    """The plan as text for a reader, one line for each layer."""
    flags = ["steps overlap"] * plan.overlaps + ["prefix caching"] * plan.prefix_caching
    flags += ["hybrid manager off"] * (not plan.hybrid) + [f"layout {plan.layout}"]
    flags += [f"blocks on {plan.shards} ranks"] * (plan.shards > 1)
    flags += [_number(plan.drafts, "draft token")] * (plan.drafts > 0)
    flags += ["every state is kept"] * plan.every_state
    from_ = "one request needs" if plan.counted_from == "need" else "is ample"
    what = "num_gpu_blocks_override is" if plan.override else "memory is for"
    length = "at most " * plan.auto + f"{plan.max_model_len} tokens"
    richer = f"; worker {plan.richer} has {plan.more} more" if plan.more else ""
    return [
        f"engine: a request has {length}, {plan.answer_tokens} of them answered; "
        f"{plan.chunk_tokens} tokens a step; {_number(plan.stages, 'stage')} of "
        f"{_number(plan.ranks, 'worker')}; " + ", ".join(flags),
        *(f"layer {i}: {layer.words}" for i, layer in enumerate(plan.layers)),
        f"{what} {plan.blocks:+} blocks from what {from_}, and {plan.odd_bytes} bytes{richer}",
    ]


def random_plan(seed: int) -> StartupPlan:
    """The plan of this seed. Most plans have few features: a model of one or two kinds of layers,
    with pages of one size."""
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
    plan = StartupPlan(
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
    return plan


def _rarer(r: Random, plan: StartupPlan) -> StartupPlan:
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


def _latent(r: Random, plan: StartupPlan) -> tuple[Layer, ...]:
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


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
