"""What a start came to, as plain data: nothing of vLLM is in it."""

from typing import NamedTuple

from kvproof.model.plans.startup import Layer, StartupPlan
from kvproof.model.state import Death


class Pages(NamedTuple):
    """Where the pages of a layer are: the page of block b begins at byte `start + b * stride` of a
    buffer, and has `size` bytes."""

    layer: str
    buffer: int
    start: int
    stride: int
    size: int


class StartedGroup(NamedTuple):
    """A cache group: what its block table keeps (the kind of its specs), the tokens of a block, and
    the tokens of its window or chunk (0 where all are kept). `layers` are those of the worker, or
    of all of the model. `reported` is the kind that vLLM names in its reports ("" where a release
    names none), `entries` how many the block table of a request has, and `of_layers` how many its
    layers expect there (None in a release that does not say it)."""

    kind: str
    block: int
    window: int
    layers: tuple[str, ...]
    reported: str = ""
    entries: int | None = None
    of_layers: tuple[int | None, ...] = ()


class StartedWorker(NamedTuple):
    """A worker: its layers, the memory that it reports, and what it has to allocate."""

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


class LoneRequest(NamedTuple):
    """A request of `tokens` tokens, alone on the engine that was started. `held_max` is the largest
    number of blocks that it held after a step was scheduled. Where it does not end, `computed` says
    how far it came. `unerased` are the blocks that it took, by group, and that the workers did not
    erase; none where a release does not report what is erased."""

    tokens: int
    ended: bool
    held_max: int
    computed: int
    unerased: tuple[tuple[int, int], ...] = ()


class Startup(NamedTuple):
    """A start-up. `blocks` are those that the memory of every worker has room for, or those of
    `num_gpu_blocks_override`; None in the first start of a plan, which has plenty of memory.

    Either it is `refused`, with these words, or it `died`, or there are workers. `groups` are those
    of the first start; in one of an accepted start, those of the scheduler. `known_tokens` is the
    new maximum length that the workers receive, `concurrency` how many longest requests are
    reported to fit. `lacks` is the number of blocks without which the request does not end."""

    plan: StartupPlan
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

    @property
    def accepted(self) -> bool:
        """Whether the engine was started."""
        return not (self.refused or self.died)

    @property
    def enough_blocks(self) -> int:
        """With so many blocks, a request of the largest length fits."""
        return self.enough_for(self.plan.max_model_len)

    def enough_for(self, tokens: int) -> int:
        """With so many blocks, the null block included, one request of so many tokens fits: no
        engine has to take more. Each group has the blocks of its tokens, a window not more than
        those of its window and of the steps in flight; two more for what is not aligned, and the
        drafts. Four states are enough for Mamba, or one for each block, and one for each draft."""
        return 1 + sum(_enough(self, group, tokens) for group in self.groups)


def cdiv(count: int, size: int) -> int:
    """How many of this size are needed."""
    return -(-count // size)


def _enough(start: Startup, group: StartedGroup, tokens: int) -> int:
    drafts = start.plan.drafts
    if group.kind == "mamba":
        states = cdiv(tokens, group.block) if start.plan.every_state else 2
        return states + 2 + drafts
    in_flight = start.in_flight_tokens
    kept = min(tokens, group.window + in_flight) if group.window else tokens
    return cdiv(kept + drafts, group.block) + 2
