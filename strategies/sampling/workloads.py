"""Jobs whose prompts share prefixes and end on block boundaries or next to them.

Prefix hits and off-by-one errors occur there. A prompt is a branch of a small prefix tree: the
start of an earlier prompt, then one letter repeated. Shrinking leads to short prompts of the letter
"a".
"""

import functools
from bisect import bisect_right
from collections.abc import Sequence
from itertools import combinations

from hypothesis import strategies as st

from kvproof.invariants.arithmetic import in_common
from kvproof.model.capacity import needed_blocks
from kvproof.model.config import Cluster, EngineConfig, Job
from kvproof.model.config.extra_keys import FIRST
from kvproof.model.config.limits import PROMPT_TOKENS_MAX
from kvproof.model.errors import UsageError
from kvproof.model.state import SAMPLED

LETTERS = "abc"
MAX_TOKENS = (1, 2, 3, 4)
"""The lengths of outputs, in tokens."""

PRIORITIES = (0, 1)
"""Priorities of jobs, for priority scheduling."""

EXTRA_KEYS = ("", *FIRST)
"""Extra keys of jobs."""

PARTS_MAX = 2
"""The largest number of parts of a session after the first."""

PART_MAX = 6
"""The largest length of such a part, in tokens."""

BOUNDARIES = 4
"""The number of block boundaries, from the start of a prompt, around which lengths are chosen."""

LONGEST = 256
"""The length of the longest prompt, in tokens. In a pool that holds more tokens, one prompt does
not fill the pool: that would only cost time."""


@functools.lru_cache(maxsize=64)
def longest_prompt(engines: tuple[EngineConfig, ...], max_tokens: int) -> int:
    """The longest prompt (in tokens) that every engine can serve alone, 0 if none fits.

    The last sampled token is never computed, and P samples a single one.
    """
    return min(_longest_on(engine, max_tokens) for engine in engines)


def _longest_on(engine: EngineConfig, max_tokens: int) -> int:
    after_prompt = 0 if engine.role == "prefill" else max_tokens - 1

    def needed(prompt: int) -> int:
        return needed_blocks(engine, prompt + after_prompt)

    return bisect_right(range(1, LONGEST + 1), engine.num_blocks - 1, key=needed)


def prompt_lengths(engines: tuple[EngineConfig, ...], longest: int) -> list[int]:
    """Lengths worth trying, in tokens, shortest first: 1, the first block boundaries of each group
    and their neighbours, and the longest that fits."""
    sizes = {g.block_size for e in engines for g in e.groups}
    near = {
        k * size + offset
        for size in sizes
        for k in range(1, BOUNDARIES + 1)
        for offset in (-1, 0, 1)
    }
    return sorted(n for n in {1, longest, *near} if 1 <= n <= longest)


@st.composite
def prompts(
    draw: st.DrawFn, engines: tuple[EngineConfig, ...], longest: int, earlier: Sequence[str]
) -> str:
    """A prompt of at most `longest` tokens: a new one, an earlier text, one that extends an earlier
    text or branches off from it near a block boundary, or one that branches off where two earlier
    texts do, as prompts do that begin with the same instructions."""
    lengths = prompt_lengths(engines, longest)
    trunks = ["", *earlier]
    if common := sorted(_common_beginnings(earlier)):
        trunks = draw(st.sampled_from([trunks, common]))
    trunk = draw(st.sampled_from(trunks))
    if trunk and trunk not in common and draw(st.booleans()):
        return trunk[:longest]
    length = draw(st.sampled_from(lengths))
    if trunk and trunk not in common:
        parting = [n for n in lengths if n < len(trunk)]
        trunk = trunk[: draw(st.sampled_from([len(trunk), *parting]))]
    return (trunk + draw(st.sampled_from(LETTERS)) * length)[:length]


def _common_beginnings(texts: Sequence[str]) -> set[str]:
    """The common prefixes after which two texts diverge."""
    return {one[: in_common(one, other)] for one, other in combinations(texts, 2)} - {"", *texts}


@st.composite
def _parts(draw: st.DrawFn, room: int, max_tokens: int) -> tuple[str, ...]:
    """Further parts of a prompt, if one engine can serve `room` more tokens."""
    parts: list[str] = []
    for _ in range(draw(st.integers(0, PARTS_MAX))):
        room -= max_tokens - 1
        if room < 1:
            break
        part = draw(st.sampled_from(LETTERS)) * draw(st.integers(1, min(room, PART_MAX)))
        parts.append(part)
        room -= len(part)
    return tuple(parts)


@st.composite
def _next_turns(
    draw: st.DrawFn, engines: tuple[EngineConfig, ...], longest: int, answered: Job
) -> str:
    """The prompt of a follow-up turn: the conversation so far and some more tokens, or a prefix of
    the conversation that ends near a block boundary or near the end of the tokens that D holds."""
    conversation: str = answered.conversation
    held = len(conversation) - 1
    lengths = {*prompt_lengths(engines, longest), *range(held - 1, held + 3), len(answered.prompt)}
    length: int = draw(st.sampled_from(sorted(n for n in lengths if 1 <= n <= longest)))
    letter: str = draw(st.sampled_from(LETTERS))
    return conversation[:length] + letter * (length - len(conversation))


@st.composite
def jobs(
    draw: st.DrawFn,
    cluster: Cluster,
    name: str,
    earlier: Sequence[str] = (),
    embeds: bool = True,
    answered: Sequence[Job] = (),
    live: bool = False,
) -> Job:
    """A job that each engine of the cluster can serve alone; if the cluster is `oversized`, the job
    may be up to one block too long. `earlier` are texts to branch from, prompts with and without
    their answers; with `embeds` the traffic of P/D and of a store sends some prompts as embeddings;
    `answered` are jobs that may have a follow-up turn. The traffic of `live` vLLM may have what the
    reference does not have.

    Raises UsageError if not even one token fits.
    """
    possible = [m for m in MAX_TOKENS if longest_prompt(cluster.engines, m)]
    if not possible:
        raise UsageError(
            f"Not even a prompt of one token fits the engines of cluster {cluster.name}. "
            "Use a larger num_blocks."
        )
    # One choice for both: with more choices a shrunk run would keep the jobs of its cluster.
    stop_at = () if cluster.sessions or cluster.follow_up_turns else range(1, max(possible) + 1)
    whole = [(most, 0) for most in possible]
    cut = [(most, stop) for most in possible for stop in stop_at if stop <= most]
    max_tokens, stops = draw(st.sampled_from([*whole, *whole, *cut]))
    longest = longest_prompt(cluster.engines, max_tokens)
    if cluster.oversized:
        longest += max(cluster.prefill.block_sizes, default=1)
    longest = min(longest, PROMPT_TOKENS_MAX)
    answered = [job for job in answered if not job.embeds]
    before = draw(st.sampled_from([None, *answered])) if answered else None
    if before is not None:
        prompt = draw(_next_turns(cluster.engines, longest, before))
        return Job(name, prompt, max_tokens, follows=before.name, extra_key=before.extra_key)
    if cluster.extra_keys:  # an answer has no form for each key, so only its next turn contains it
        earlier = [each for each in earlier if SAMPLED not in each]
    prompt = draw(prompts(cluster.engines, longest, tuple(earlier)))
    modelled = not (cluster.follow_up_turns or any(e.kv_events for e in cluster.engines))
    by_ids = cluster.sessions or not (live or modelled)
    connected = any(e.has_connector for e in cluster.engines)
    by_ids = by_ids or SAMPLED in prompt  # an answer has no embeddings
    as_embeds = embeds and connected and not by_ids and draw(st.booleans())
    priority = draw(st.sampled_from(PRIORITIES)) if cluster.by_priority else 0
    parts = draw(_parts(longest - len(prompt), max_tokens)) if cluster.sessions else ()
    extra_key = draw(st.sampled_from(EXTRA_KEYS)) if cluster.extra_keys else ""
    reports = live and any(map(_names_its_hits, cluster.engines)) and draw(st.booleans())
    return Job(
        *(name, prompt, max_tokens, as_embeds, priority, parts),
        extra_key=extra_key,
        reports_hits=reports,
        stops=stops,
    )


def _names_its_hits(engine: EngineConfig) -> bool:
    """Whether an engine can say of the blocks of a hit that they are stored. Where hits end inside
    a block, vLLM 0.32.0 dies of it (finding `hit_report_names_null_blocks`), and most of a run
    would not take place."""
    return engine.kv_events and not engine.partial_block_hits
