"""This module says what the engines of a cluster have: pools, cache groups, how they transfer."""

from collections.abc import Iterator

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.counted import counted
from kvproof.reports.screen import ScreenLine

EXTRA = {"salt": "a salt", "adapter": "a LoRA adapter", "reloaded": "the adapter, loaded again"}

KINDS = {"full": "full attention", "window": "sliding window", "mamba": "Mamba state"}


def engines(cluster: Cluster) -> Iterator[ScreenLine]:
    """Say what the engines have: of the second one, what the first one has not."""
    first, *others = cluster.engines
    rows = [*_rows(first)]
    yield ScreenLine(f"Engine {first.name}: {'; '.join(rows)}.")
    for each in others:
        further = [row for row in _rows(each) if row not in rows]
        further.append(f"the rest as {first.name}")
        yield ScreenLine(f"Engine {each.name}: {'; '.join(further)}.")
        verb = {"pull": f"{each.name} pulls", "push": f"{first.name} pushes"}[cluster.transfer]
        back = ", and back in later turns" if cluster.follow_up_turns else ""
        yield ScreenLine(f"{verb} KV from {first.name} to {each.name}{back}.")


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


def cluster_line(cluster: Cluster) -> str:
    """Return the engines of a cluster, each with its cache groups; what all have comes once."""
    engines = [f"{engine.name} {engine.num_blocks} blocks" for engine in cluster.engines]
    groups = [_groups(engine) for engine in cluster.engines]
    if len({*groups}) == 1:
        return f"{' -> '.join(engines)}: {groups[0]}"
    parts = (f"{engine}: {those}" for engine, those in zip(engines, groups, strict=True))
    return "  ->  ".join(parts)


def _groups(engine: EngineConfig) -> str:
    """Return the cache groups of an engine as text, each with the tokens of its block."""
    return " | ".join(map(_group, engine.groups))


def _group(group: Group) -> str:
    window = f" (of {group.window})" if group.kind == "window" else ""
    state = " uncached" if group.kind == "mamba" and group.mode == "none" else ""
    drafter = " eagle" if group.eagle else ""
    return f"{group.kind} {group.block_size}{window}{state}{drafter}"
