"""Cluster templates: clusters that fit the numbers of a counterexample, and similar templates.

A template does not fix the other prompt, nor the number of blocks if it is crowded: `clusters`
gives every possibility, the simplest first. Each request fits alone, because vLLM admits no other.
"""

import dataclasses
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from kvproof.model.arithmetic.counts import blocks_for_tokens
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.engine import Role
from kvproof.model.config.group import Kind

LETTERS = string.ascii_lowercase
OTHER_LETTERS = string.ascii_uppercase
"""The tokens of a prompt, and of another prompt without a common token."""

STATE = "state"
"""The kind of a Mamba group that caches nothing; its count-level system has the same name."""


@dataclass(frozen=True)
class ClusterTemplate:
    """A cluster in numbers.

    `kinds` are the kinds of the cache groups, `state` for a Mamba group that caches nothing. In
    tokens: `kernel` block, `window`, `chunk` of a step, `prompt`, its `shared` prefix,
    `max_tokens`. A block of P has `p_ratio` kernel blocks; a block of D, or of a single engine, has
    `d_ratio`. `total` is the number of blocks including the null block, or None if it is open.
    `crowded`: another request runs at the same time, also with few blocks, so that they preempt
    each other. `recomputes`: a load may fail, and then D computes the prompt itself. `evicting`:
    cached blocks may be evicted.
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
    evicting: bool = False

    @property
    def d_block(self) -> int:
        """Tokens of a block on D, or on a single engine."""
        return self.kernel * self.d_ratio

    def changes(self, first: "ClusterTemplate") -> tuple[str, ...]:
        """The differences between this template and the first one, field by field."""
        fields = (f.name for f in dataclasses.fields(self))
        pairs = ((name, getattr(self, name), getattr(first, name)) for name in fields)
        return tuple(_change(name, a, b) for name, a, b in pairs if a != b)


def _change(name: str, now: object, first: object) -> str:
    if isinstance(now, bool):
        return name if now else f"not {name}"
    texts = (" and ".join(v) if isinstance(v, tuple) else str(v) for v in (now, first))
    return f"{name} {' for '.join(texts)}"


def near(template: ClusterTemplate) -> Iterator[ClusterTemplate]:
    """The templates that differ in one field: a size one larger, a window as wide as the prompt,
    one kind more or fewer. No size is smaller, because the numbers of a counterexample are already
    small."""

    def other(**fields: object) -> ClusterTemplate:
        return dataclasses.replace(template, **fields)  # type: ignore[arg-type]

    yield other(prompt=template.prompt + 1)
    if template.connected:
        if template.p_ratio != template.d_ratio:
            yield other(p_ratio=template.d_ratio)
            yield other(d_ratio=template.p_ratio)
        yield other(p_ratio=template.p_ratio + 1)
        yield other(d_ratio=template.d_ratio + 1)
    if "mamba" in template.kinds:
        yield other(kinds=tuple(k for k in template.kinds if k != "mamba"))
    elif STATE not in template.kinds:
        yield other(kinds=(*template.kinds, "mamba"))
    elif template.caching:
        yield other(caching=False)
    if template.total is None:
        yield other(crowded=not template.crowded)
    else:
        yield other(total=template.total + 1)
    yield other(shared=template.shared + template.d_block)
    if template.embeds:
        yield other(embeds=False)
    if "window" in template.kinds:
        yield other(window=template.window + 1)
        yield other(window=max(template.window, template.prompt))
    yield other(chunk=template.chunk + 1)
    yield other(kernel=template.kernel + 1)
    yield other(max_tokens=template.max_tokens + 1)


def clusters(template: ClusterTemplate, name: str) -> Iterator[Cluster]:
    """The clusters that fit a template. Raises UsageError if no cluster can fit it."""
    for jobs in _traffics(template):
        roomy = 1 + sum(_blocks(template, len(job.prompt) + job.max_tokens + 1) for job in jobs)
        numbers = [roomy] if template.total is None else [template.total]
        if template.crowded:
            numbers += range(1 + _blocks(template, _computed(template)), roomy)
        for blocks in numbers:
            yield _cluster(template, name, jobs, blocks, roomy)


def _computed(template: ClusterTemplate) -> int:
    """Tokens that one request computes on the engine that may have few blocks. If a state is
    transferred, P leaves the last token to D; the last sampled token is not computed."""
    if not template.connected:
        return template.prompt + template.max_tokens - 1
    return max(template.prompt - int("mamba" in template.kinds or STATE in template.kinds), 1)


def _traffics(template: ClusterTemplate) -> Iterator[tuple[Job, ...]]:
    """The jobs. If crowded: the job and one with other tokens. Otherwise: the job alone, or with
    one that has the same prefix; the job twice; and, for a state at a shared prefix boundary, the
    job with two others that share only the prefix."""

    def job(name: str, prompt: str) -> Job:
        return Job(name, prompt, template.max_tokens, template.embeds)

    prompt = _tokens(LETTERS, template.prompt)
    if template.crowded:
        yield job("r0", _tokens(OTHER_LETTERS, template.prompt)), job("r1", prompt)
        return
    if template.shared:
        yield job("r0", prompt[: template.shared] + OTHER_LETTERS[0]), job("r1", prompt)
    else:
        yield (job("r0", prompt),)
    yield job("r0", prompt), job("r1", prompt)
    if template.shared and "mamba" in template.kinds:
        parted = (prompt[: template.shared] + other * 3 for other in OTHER_LETTERS[:2])
        yield job("r0", prompt), *(job(f"r{n}", p) for n, p in enumerate(parted, 1))


def _tokens(letters: str, count: int) -> str:
    return (letters * (count // len(letters) + 1))[:count]


def _blocks(template: ClusterTemplate, tokens: int) -> int:
    """The number of blocks that a request of `tokens` tokens can hold."""
    size = template.kernel * min(template.p_ratio, template.d_ratio)
    return len(template.kinds) * int(blocks_for_tokens(tokens, size))


def _group(template: ClusterTemplate, kind: str, block: int) -> Group:
    if kind == STATE:
        return Group("mamba", block, mode="none")
    return Group(cast(Kind, kind), block, window=template.window if kind == "window" else 0)


def _cluster(
    template: ClusterTemplate, name: str, jobs: tuple[Job, ...], blocks: int, decode_blocks: int
) -> Cluster:
    def engine(letter: str, role: Role, ratio: int, blocks: int) -> EngineConfig:
        groups = tuple(_group(template, kind, template.kernel * ratio) for kind in template.kinds)
        chunk, caching = template.chunk, template.caching
        return EngineConfig(letter, groups, blocks, role, chunk, ratio, prefix_caching=caching)

    if not template.connected:
        alone = (engine("E", "both", template.d_ratio, blocks),)
        return Cluster(name, alone, jobs, evictions=template.evicting)
    p = engine("P", "prefill", template.p_ratio, blocks)
    d = engine("D", "decode", template.d_ratio, decode_blocks)
    return Cluster(
        name,
        (p, d),
        jobs,
        evictions=template.evicting,
        failures=int(template.recomputes),
        load_failure="recompute" if template.recomputes else "fail",
    )
