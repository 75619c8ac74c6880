"""What numbers say of a cluster, as a sketch of one; the clusters that fit it, and sketches near it.

What a sketch leaves open is which other prompt there is, and how many blocks P has: every
possibility is given, the simplest first.
"""

import dataclasses
import string
from collections.abc import Iterator
from dataclasses import dataclass

from kvproof.model.config import Cluster, Engine, Group, Job
from kvproof.model.counts import blocks_for_tokens

LETTERS = string.ascii_lowercase
OTHER_LETTERS = string.ascii_uppercase
"""The tokens of a prompt, and of another one that has nothing in common with it."""

TRAFFIC = ("alone", "prefix", "twice", "other")
"""The job alone; after one with a common prefix; after the same; beside one of other tokens."""

STATE = "state"
"""The kind of a Mamba group that caches nothing, by the name its count-level system has."""


@dataclass(frozen=True)
class Sketch:
    """A cluster in numbers.

    `kinds` are those of the cache groups, `state` for a Mamba group that caches nothing. Tokens:
    `kernel` block, `window`, `chunk` of a step, `prompt`, its `shared` prefix, `max_tokens`.
    `p_ratio` and `d_ratio` kernel blocks make a block; one engine has the latter. `total` is the
    number of blocks, the null block among them, or None where it is open. `crowded`: so few that
    requests preempt each other.
    """

    kinds: tuple[str, ...] = ("full",)
    kernel: int = 1
    p_ratio: int = 1
    d_ratio: int = 1
    window: int = 1
    chunk: int = 8
    prompt: int = 1
    shared: int = 0
    max_tokens: int = 1
    total: int | None = None
    connected: bool = True
    caching: bool = True
    embeds: bool = False
    crowded: bool = False
    recomputes: bool = False

    @property
    def d_block(self) -> int:
        """Tokens of a block on D, or of the one engine."""
        return self.kernel * self.d_ratio

    def changes(self, told: "Sketch") -> tuple[str, ...]:
        """How this sketch differs from what was told, field by field."""
        fields = (f.name for f in dataclasses.fields(self))
        pairs = ((name, getattr(self, name), getattr(told, name)) for name in fields)
        return tuple(f"{name} {_text(a)} for {_text(b)}" for name, a, b in pairs if a != b)


def _text(value: object) -> str:
    return " and ".join(value) if isinstance(value, tuple) else str(value)


def near(sketch: Sketch) -> Iterator[Sketch]:
    """The sketches that differ in one respect: a size one larger, a kind more or less. None is
    smaller, since numbers that refute something are about as small as they can be."""

    def other(**fields: object) -> Sketch:
        return dataclasses.replace(sketch, **fields)  # type: ignore[arg-type]

    yield other(prompt=sketch.prompt + 1)
    if sketch.p_ratio != sketch.d_ratio:
        yield other(p_ratio=sketch.d_ratio)
        yield other(d_ratio=sketch.p_ratio)
    if "mamba" in sketch.kinds:
        yield other(kinds=tuple(k for k in sketch.kinds if k != "mamba"))
    elif STATE not in sketch.kinds:
        yield other(kinds=(*sketch.kinds, "mamba"))
    if "window" in sketch.kinds:
        yield other(window=sketch.window + 1)
    yield other(shared=sketch.shared + sketch.d_block)
    if sketch.connected:
        yield other(p_ratio=sketch.p_ratio + 1)
        yield other(d_ratio=sketch.d_ratio + 1)
    yield other(kernel=sketch.kernel + 1)
    yield other(chunk=sketch.chunk + 1)
    yield other(max_tokens=sketch.max_tokens + 1)
    if sketch.total is not None:
        yield other(total=sketch.total + 1)
    if sketch.caching and STATE in sketch.kinds:
        yield other(caching=False)


def clusters(sketch: Sketch, name: str) -> Iterator[Cluster]:
    """The clusters that fit a sketch. Raises UsageError where there can be none."""
    for traffic in _traffic(sketch):
        jobs = _jobs(sketch, traffic)
        roomy = 1 + sum(_blocks(sketch, len(j.prompt) + j.max_tokens) for j in jobs)
        cluster = _cluster(sketch, name, jobs, sketch.total or roomy, roomy)
        if not sketch.crowded:
            yield cluster
        if len(jobs) > 1 and sketch.total is None and (sketch.crowded or traffic == "other"):
            for blocks in range(len(sketch.kinds) + 1, roomy):
                yield _cluster(sketch, name, jobs, blocks, roomy)


def _traffic(sketch: Sketch) -> tuple[str, ...]:
    """The kinds of traffic, those that the numbers ask for in front."""
    wanted: tuple[str, ...] = ("prefix", "twice") if sketch.shared else ()
    wanted = ("other",) if sketch.crowded else wanted
    return (*wanted, *(t for t in TRAFFIC if t not in wanted))


def _tokens(letters: str, count: int) -> str:
    return (letters * (count // len(letters) + 1))[:count]


def _jobs(sketch: Sketch, traffic: str) -> tuple[Job, ...]:
    prompt = _tokens(LETTERS, sketch.prompt)
    before = {
        "prefix": prompt[: max(sketch.shared, 1)] + OTHER_LETTERS[0],
        "twice": prompt,
        "other": _tokens(OTHER_LETTERS, sketch.prompt),
    }
    if traffic == "alone":
        return (Job("r0", prompt, sketch.max_tokens, sketch.embeds),)
    first = Job("r0", before[traffic], sketch.max_tokens, sketch.embeds)
    return (first, Job("r1", prompt, sketch.max_tokens, sketch.embeds))


def _blocks(sketch: Sketch, tokens: int) -> int:
    """Blocks that a request of so many tokens can hold, and one more in each group."""
    size = sketch.kernel * min(sketch.p_ratio, sketch.d_ratio)
    return len(sketch.kinds) * (int(blocks_for_tokens(tokens, size)) + 1)


def _group(sketch: Sketch, kind: str, block: int) -> Group:
    if kind == STATE:
        return Group("mamba", block, mode="none")
    return Group(kind, block, window=sketch.window if kind == "window" else 0)


def _cluster(
    sketch: Sketch, name: str, jobs: tuple[Job, ...], blocks: int, decode_blocks: int
) -> Cluster:
    def engine(letter: str, role: str, ratio: int, blocks: int) -> Engine:
        groups = tuple(_group(sketch, kind, sketch.kernel * ratio) for kind in sketch.kinds)
        chunk, caching = sketch.chunk, sketch.caching
        return Engine(letter, groups, blocks, role, chunk, ratio, prefix_caching=caching)

    if not sketch.connected:
        return Cluster(name, (engine("E", "both", sketch.d_ratio, blocks),), jobs)
    p = engine("P", "prefill", sketch.p_ratio, blocks)
    d = engine("D", "decode", sketch.d_ratio, decode_blocks)
    return Cluster(
        name, (p, d), jobs, load_failure="recompute" if sketch.recomputes else "fail"
    )
