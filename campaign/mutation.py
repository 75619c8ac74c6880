"""This module changes runs: other traffic, other events, another order, another cluster.

Nothing here has to be possible. Who takes the run leaves out what the machine does not offer, and
the jobs are made such as the cluster can serve.
"""

from collections.abc import Callable, Sequence
from random import Random

from msgspec.structs import replace

from kvproof.campaign.unit import CorpusEntry
from kvproof.model.config import Cluster, Job
from kvproof.model.config.extra_keys import FIRST
from kvproof.model.errors import UsageError
from kvproof.model.events import Event, Submit
from kvproof.strategies.sampling.workloads import (
    LETTERS,
    MAX_TOKENS,
    PRIORITIES,
    longest_prompt,
    prompt_lengths,
)

EVENTS_MAX = 120
"""Events of a changed run."""

JOBS_MAX = 8

SLICE_MAX = 8
"""Events that are dropped, repeated or moved at once."""

CHANGES = (1, 1, 2, 3)
"""How many changes are made, each as often as it is here."""


def mutated(
    entry: CorpusEntry, others: Sequence[CorpusEntry], cluster: Cluster, random: Random
) -> CorpusEntry:
    """Return a changed version of an entry, in this cluster. It may take parts of the others."""
    jobs, events = list(entry.cluster.jobs), list(entry.events)
    for _ in range(random.choice(CHANGES)):
        change = random.choice(CHANGED)
        jobs, events = change(jobs, events, others, cluster, random)
        events = events[:EVENTS_MAX]
    return fitted(cluster, jobs, events)


Changed = tuple[list[Job], list[Event]]
Change = Callable[[list[Job], list[Event], Sequence[CorpusEntry], Cluster, Random], Changed]


def fitted(cluster: Cluster, jobs: Sequence[Job], events: Sequence[Event]) -> CorpusEntry:
    """Return an entry with those of these jobs that the cluster can serve, each without what the
    cluster does not have."""
    made: list[Job] = []
    for job in jobs[:JOBS_MAX]:
        served = _served(cluster, job, {each.name for each in made})
        if served is not None:
            made.append(served)
    try:
        carrying = cluster.carrying(*made)
    except UsageError:  # a setting of the cluster and one of a job exclude each other
        carrying = cluster.carrying()
    names = {each.name for each in carrying.jobs}
    engines = {each.name for each in cluster.engines}
    kept = (
        e
        for e in events
        if getattr(e, "engine", None) in {*engines, None} and _request(e) in {*names, ""}
    )
    return CorpusEntry(carrying, tuple(kept))


def _request(event: Event) -> str:
    return getattr(event, "request", "").partition(" ")[0]


def _served(cluster: Cluster, job: Job, earlier: set[str]) -> Job | None:
    """Return the job as this cluster can serve it; None if there is no room for it."""
    if job.follows and not (cluster.follow_up_turns and job.follows in earlier):
        job = replace(job, follows="")
    longest = longest_prompt(cluster.engines, job.max_tokens)
    prompt = job.prompt[:longest]
    if not prompt:
        return None
    if job.follows and prompt != job.prompt:
        return None
    turns = cluster.follow_up_turns or cluster.sessions
    by_ids = turns or any(e.kv_events for e in cluster.engines)
    connected = any(e.has_connector for e in cluster.engines)
    parts, room = [], longest - len(prompt)
    for part in job.parts if cluster.sessions else ():
        room -= job.max_tokens - 1 + len(part)
        if room < 0:
            break
        parts.append(part)
    return replace(
        job,
        prompt=prompt,
        embeds=job.embeds and connected and not by_ids,
        priority=job.priority if cluster.by_priority else 0,
        parts=tuple(parts),
        extra_key=job.extra_key if cluster.extra_keys else "",
    )


def _slice(events: Sequence[Event], random: Random) -> tuple[int, int]:
    first = random.randrange(len(events) + 1)
    return first, first + random.randint(1, SLICE_MAX)


def _drop(jobs: list[Job], events: list[Event], _o: object, _c: object, random: Random) -> Changed:
    """Leave out some events."""
    first, end = _slice(events, random)
    return jobs, events[:first] + events[end:]


def _move(jobs: list[Job], events: list[Event], _o: object, _c: object, random: Random) -> Changed:
    """Let some events happen earlier or later."""
    first, end = _slice(events, random)
    rest = events[:first] + events[end:]
    to = random.randrange(len(rest) + 1)
    return jobs, rest[:to] + events[first:end] + rest[to:]


def _repeat(
    jobs: list[Job], events: list[Event], _o: object, _c: object, random: Random
) -> Changed:
    """Let some events happen again, for new requests with the same prompts."""
    first, end = _slice(events, random)
    to = random.randrange(first, len(events) + 1)
    jobs, again = _renamed(jobs, jobs, events[first:end])
    return jobs, events[:to] + again + events[to:]


def _splice(
    jobs: list[Job], events: list[Event], others: Sequence[CorpusEntry], _c: object, random: Random
) -> Changed:
    """Let the run begin as it did, and end as another one."""
    other = random.choice(others)
    to, begin = random.randrange(len(events) + 1), random.randrange(len(other.events) + 1)
    jobs, rest = _renamed(jobs, other.cluster.jobs, other.events[begin:])
    return jobs, events[:to] + rest


def _renamed(
    jobs: list[Job], more: Sequence[Job], events: Sequence[Event]
) -> tuple[list[Job], list[Event]]:
    """Return jobs, and those of other events, under new names."""
    used = {job.name for job in jobs}
    fresh = (name for n in range(len(jobs) + len(more) + 1) if (name := f"r{n}") not in used)
    wanted = {_request(event) for event in events}
    names = {job.name: next(fresh) for job in more if job.name in wanted}
    copies = [
        replace(job, name=names[job.name], follows=names.get(job.follows, ""))
        for job in more
        if job.name in names
    ]
    renamed = [
        replace(e, request=e.request.replace(was, names[was], 1))  # type: ignore[union-attr]
        if (was := _request(e)) in names
        else e
        for e in events
    ]
    return jobs + copies, renamed


def _resize(
    jobs: list[Job], events: list[Event], _o: object, cluster: Cluster, random: Random
) -> Changed:
    """Make a prompt a token longer or shorter, or end it at or next to a block boundary."""
    index, job = _one(jobs, random)
    if job is None:
        return jobs, events
    longest = longest_prompt(cluster.engines, job.max_tokens)
    near = [n for n in (len(job.prompt) - 1, len(job.prompt) + 1) if 1 <= n <= longest]
    length = random.choice([*near, *near, *prompt_lengths(cluster.engines, longest)] or [1])
    prompt = job.prompt[:length] + job.prompt[-1] * (length - len(job.prompt))
    return [*jobs[:index], replace(job, prompt=prompt), *jobs[index + 1 :]], events


def _branch(
    jobs: list[Job], events: list[Event], _o: object, cluster: Cluster, random: Random
) -> Changed:
    """Let a prompt begin as another one does, up to a block boundary or next to one."""
    index, job = _one(jobs, random)
    if job is None:
        return jobs, events
    trunk = random.choice(jobs).prompt
    longest = longest_prompt(cluster.engines, job.max_tokens)
    parting = random.choice(prompt_lengths(cluster.engines, longest) or [1])
    rest = random.choice(LETTERS) * max(len(job.prompt) - parting, 0)
    prompt = random.choice((trunk, trunk[:parting] + rest))
    return [*jobs[:index], replace(job, prompt=prompt), *jobs[index + 1 :]], events


def _retouch(
    jobs: list[Job], events: list[Event], _o: object, cluster: Cluster, random: Random
) -> Changed:
    """Give a job another number of output tokens, priority or key."""
    index, job = _one(jobs, random)
    if job is None:
        return jobs, events
    changed = replace(
        job,
        max_tokens=random.choice(MAX_TOKENS),
        priority=random.choice(PRIORITIES),
        extra_key=random.choice((job.extra_key, "", *FIRST)) if cluster.extra_keys else "",
    )
    return [*jobs[:index], changed, *jobs[index + 1 :]], events


def _again(
    jobs: list[Job], events: list[Event], _o: object, cluster: Cluster, random: Random
) -> Changed:
    """Let a prompt come again at the end: alone, or as the beginning of a longer one."""
    _, job = _one(jobs, random)
    if job is None or len(jobs) >= JOBS_MAX:
        return jobs, events
    used = {each.name for each in jobs}
    name = next(name for n in range(JOBS_MAX) if (name := f"r{n}") not in used)
    longest = longest_prompt(cluster.engines, 1)
    longer = [n for n in prompt_lengths(cluster.engines, longest) if n > len(job.prompt)]
    length = random.choice([len(job.prompt), *longer])
    prompt = job.prompt + random.choice(LETTERS) * (length - len(job.prompt))
    last = replace(job, name=name, prompt=prompt, max_tokens=1, parts=())
    return [*jobs, last], [*events, Submit(cluster.prefill.name, name)]


def _one(jobs: list[Job], random: Random) -> tuple[int, Job | None]:
    """Choose a job that is no turn of a conversation: turns belong together."""
    followed = {job.follows for job in jobs}
    free = [n for n, job in enumerate(jobs) if not job.follows and job.name not in followed]
    return (index := random.choice(free), jobs[index]) if free else (0, None)


CHANGED: tuple[Change, ...] = (
    _drop,
    _move,
    _repeat,
    _again,
    _splice,
    _resize,
    _resize,
    _branch,
    _retouch,
)
"""The changes, each as often as it is here."""
