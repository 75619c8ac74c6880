"""This module draws the engines of a cluster: pools, cache groups, and what connects them."""

from collections.abc import Iterator
from itertools import zip_longest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.counted import counted
from kvproof.reports.screen import ScreenLine

EXTRA = {"salt": "a salt", "adapter": "a LoRA adapter", "reloaded": "the adapter, loaded again"}

KINDS = {"full": "full attention", "window": "sliding window", "mamba": "Mamba state"}


def engines(cluster: Cluster, width: int) -> Iterator[ScreenLine]:
    """Draw the engines side by side where they fit, otherwise one below the other."""
    rows = [list(_rows(engine)) for engine in cluster.engines]
    left = _box(cluster.engines[0].name, rows[0])
    if len(rows) == 1:
        yield from (ScreenLine(line, hang=0) for line in left)
        return
    arrow = _arrow(cluster)
    further = [row for row in rows[1] if row not in rows[0]]
    same = ["the rest as on P"] if further != rows[1] else []
    right = _box(cluster.engines[1].name, further + same)
    if len(left[0]) + len(arrow) + len(right[0]) <= width:
        for number, (a, b) in enumerate(zip_longest(left, right, fillvalue="")):
            between = arrow if number == 1 else " " * len(arrow)
            yield ScreenLine(f"{a:{len(left[0])}}{between}{b}".rstrip(), hang=0)
        return
    yield from (ScreenLine(line, hang=0) for line in left)
    yield ScreenLine(f"   {arrow.strip()}", hang=0)
    yield from (ScreenLine(line, hang=0) for line in right)


def prompts(cluster: Cluster) -> Iterator[ScreenLine]:
    """Say what each request sends: the jobs with their prompts."""
    words = "; ".join(_job(job) for job in cluster.jobs)
    if words:
        yield ScreenLine(f"Prompts: {words}. A letter is a token, and a dot is a sampled token.")
    if any(engine.drafts for engine in cluster.engines):
        yield ScreenLine("A question mark is a draft token.")


def _job(job: Job) -> str:
    parts = "".join(f", then {part}" for part in job.parts)
    follows = f" (follows {job.follows})" if job.follows else ""
    embeds = " (embeddings)" if job.embeds else ""
    extra = f" ({EXTRA[job.extra_key]})" if job.extra_key else ""
    prompt = job.keyed_prompt if job.extra_key else job.prompt
    out = counted(job.max_tokens, "token")
    return f"{job.name} {prompt}{parts}{follows}{embeds}{extra}, {out} out"


def _rows(engine: EngineConfig) -> Iterator[str]:
    yield f"pool of {engine.num_blocks} blocks"
    for number, group in enumerate(engine.groups):
        yield f"({number}) {group_text(group)}"
    yield from _options(engine)


def _box(name: str, rows: list[str]) -> list[str]:
    inner = max(map(len, rows))
    head = f"+- {name} " + "-" * (inner - len(name) - 1) + "+"
    return [head, *(f"| {row:{inner}} |" for row in rows), "+" + "-" * (inner + 2) + "+"]


def group_text(group: Group) -> str:
    """Return a cache group as text: its kind, the size of a block, and its window."""
    window = f" of {group.window} tokens" if group.window else ""
    mode = ", not cached" if group.kind == "mamba" and group.mode == "none" else ""
    eagle = ", drafter" if group.eagle else ""
    return f"{KINDS[group.kind]}{window}, {counted(group.block_size, 'token')} a block{mode}{eagle}"


def _options(engine: EngineConfig) -> Iterator[str]:
    """Name the options of an engine that are not as usual."""
    yield f"at most {counted(engine.chunk_tokens, 'token')} a step"
    if engine.physical_per_logical > 1:
        yield f"a transfer counts kernel blocks, {engine.physical_per_logical} in each block"
    if engine.steps_in_flight > 1:
        yield f"{engine.steps_in_flight} steps in flight"
    if engine.drafts:
        yield f"{counted(engine.drafts, 'draft token')} a step"
    if engine.store:
        yield "an external store"


def _arrow(cluster: Cluster) -> str:
    verb = {"pull": "D pulls", "push": "P pushes"}[cluster.transfer]
    back = " <=>" if cluster.follow_up_turns else " ==>"
    return f"  {verb}{back}  "
