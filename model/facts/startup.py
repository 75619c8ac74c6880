"""Facts of a start-up: its result, as plain data. Nothing here imports vLLM."""

from typing import NamedTuple

from kvproof.model.plans.engine import EnginePlan, Layer
from kvproof.model.state import Death


class Pages(NamedTuple):
    """The place of a layer's pages in a buffer: the page of block b begins at byte `start + b *
    stride` and has `size` bytes."""

    layer: str
    buffer: int
    start: int
    stride: int
    size: int


class StartedGroup(NamedTuple):
    """A cache group after a start-up. It has what its block table keeps (the kind of its specs),
    the tokens of a block, and the tokens of its window or chunk (0 where all tokens are kept).
    `layers` are the group's layers of the worker or of the whole model. `reported` is the kind that
    vLLM names in its reports ("" where a release names none). `entries` is the number of entries in
    the block table of a request, and `of_layers` the numbers that its layers expect (None in a
    release that does not say it)."""

    kind: str
    block: int
    window: int
    layers: tuple[str, ...]
    reported: str = ""
    entries: int | None = None
    of_layers: tuple[int | None, ...] = ()


class StartedWorker(NamedTuple):
    """A worker after a start-up: its layers, the memory that it reports, and the caches that it
    must allocate."""

    layers: dict[str, Layer]
    memory_bytes: int
    num_blocks: int
    groups: tuple[StartedGroup, ...]
    buffers: tuple[int, ...]
    pages: tuple[Pages, ...]

    @property
    def block_bytes(self) -> int:
        """The bytes of a block."""
        return sum(self.buffers) // max(self.num_blocks, 1)


class TakenBlock(NamedTuple):
    """A request took a block for a group; `erased` says whether the workers erased the block before
    the step."""

    group: int
    block: int
    erased: bool


class LoneStep(NamedTuple):
    """A step that computes the tokens of a request from `first` to before `end`. For each cache
    group, the entries of its block table that name a block are `held`."""

    first: int
    end: int
    held: tuple[frozenset[int], ...]


class LoneRequest(NamedTuple):
    """A request of `tokens` tokens, of which `prompt` are its prompt, that runs alone on the
    started engine, in these `steps`. `held_max` is the largest number of blocks that it held after
    a step was scheduled. If it does not end, `computed` is the number of tokens that were computed.
    `taken` has the blocks that it took; it is empty where a release does not report what is erased.
    `marks` has a number for all that could be seen of each step (`live.marks`)."""

    tokens: int
    ended: bool
    held_max: int
    computed: int
    taken: tuple[TakenBlock, ...] = ()
    marks: tuple[int, ...] = ()
    prompt: int = 0
    steps: tuple[LoneStep, ...] = ()


class Together(NamedTuple):
    """So many requests of the largest length, with prompts of their own, that came at once to the
    started engine: whether all `ended`, and how often one of them was `preempted`."""

    number: int
    ended: bool
    preempted: int


class Startup(NamedTuple):
    """One start of an engine, and how it ended. `blocks` is the number of blocks for which every
    worker has memory, or `num_gpu_blocks_override`; None in the first start of a plan, which has
    plenty of memory.

    A start is `refused` with this message, or it `died`, or it has workers. `groups` are the cache
    groups of the scheduler in the first start of the plan. `known_tokens` is the new maximum length
    that the workers receive, `concurrency` how many requests of the maximum length are reported to
    fit. `lacks` is the number of blocks by which the pool is too small for the request `run`.
    `marks` has a number for the caches that the scheduler and the workers were given. After it,
    several requests ran `together` if vLLM reports that they fit."""

    plan: EnginePlan
    blocks: int | None
    groups: tuple[StartedGroup, ...] = ()
    in_flight_tokens: int = 0
    refused: str = ""
    died: Death | None = None
    num_blocks: int = 0
    max_model_len: int = 0
    known_tokens: int | None = None
    concurrency: float | None = None
    workers: tuple[StartedWorker, ...] = ()
    run: LoneRequest | None = None
    lacks: int = 0
    marks: tuple[int, ...] = ()
    together: Together | None = None

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """What is counted of a start, by name."""
        blocks = ("blocks of a started engine", self.num_blocks)
        if self.run is None:
            return (blocks,)
        return (
            blocks,
            ("blocks held by a lone request", self.run.held_max),
            ("tokens computed", self.run.computed),
        )

    @property
    def accepted(self) -> bool:
        """Whether the engine was started."""
        return not (self.refused or self.died)

    @property
    def enough_blocks(self) -> int:
        """The number of blocks that is always enough for a request of the maximum length."""
        return self.enough_for(self.plan.max_model_len)

    def enough_for(self, tokens: int) -> int:
        """The number of blocks, the null block included, that is always enough for one request of
        `tokens` tokens: no engine needs more. An attention group needs the blocks of the tokens, a
        window group at most the blocks of its window and of the steps in flight. Both need two more
        blocks because a run of tokens need not be aligned, and the blocks of the drafts. A Mamba
        group needs four states, or one for each block, and one for each draft."""
        return 1 + sum(_enough(self, group, tokens) for group in self.groups)


def cdiv(count: int, size: int) -> int:
    """Divide a count by a positive size, and round up."""
    return -(-count // size)


def _enough(start: Startup, group: StartedGroup, tokens: int) -> int:
    drafts = start.plan.drafts
    if group.kind == "mamba":
        states = cdiv(tokens, group.block) if start.plan.every_state else 2
        return states + 2 + drafts
    in_flight = start.in_flight_tokens
    slides = group.window and group.kind != "rswa"  # which keeps a prompt of any length
    kept = min(tokens, group.window + in_flight) if slides else tokens
    return cdiv(kept + drafts, group.block) + 2
