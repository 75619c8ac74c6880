"""This module changes runs: other traffic, other events, another order, another cluster.

Nothing here has to be possible. Who takes the run leaves out what the machine does not offer, and
the jobs are made such as the cluster can serve.
"""

from collections.abc import Callable, Iterator, Sequence
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
    run = _ChangedRun(entry, others, cluster, random)
    for _ in range(random.choice(CHANGES)):
        random.choice(CHANGED)(run)
        run.events = run.events[:EVENTS_MAX]
    return fitted(cluster, run.jobs, run.events)


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


class _ChangedRun:
    """A run while it is changed: its jobs and its events. Each change is a method."""

    def __init__(
        self, entry: CorpusEntry, others: Sequence[CorpusEntry], cluster: Cluster, random: Random
    ) -> None:
        self.jobs, self.events = list(entry.cluster.jobs), list(entry.events)
        self.others, self.cluster, self.random = others, cluster, random

    def drop(self) -> None:
        """Leave out some events."""
        first, end = self._slice()
        del self.events[first:end]

    def move(self) -> None:
        """Let some events happen earlier or later."""
        first, end = self._slice()
        moved = self.events[first:end]
        del self.events[first:end]
        to = self.random.randrange(len(self.events) + 1)
        self.events[to:to] = moved

    def repeat(self) -> None:
        """Let some events happen again, for new requests with the same prompts."""
        first, end = self._slice()
        to = self.random.randrange(first, len(self.events) + 1)
        self.events[to:to] = self._of_new_jobs(self.jobs, self.events[first:end])

    def splice(self) -> None:
        """Let the run begin as it did, and end as another one."""
        other = self.random.choice(self.others)
        to = self.random.randrange(len(self.events) + 1)
        begin = self.random.randrange(len(other.events) + 1)
        self.events[to:] = self._of_new_jobs(other.cluster.jobs, other.events[begin:])

    def resize(self) -> None:
        """Make a prompt a token longer or shorter, or let it end at or next to a block boundary."""
        index, job = self._one()
        if job is None:
            return
        longest = longest_prompt(self.cluster.engines, job.max_tokens)
        near = [n for n in (len(job.prompt) - 1, len(job.prompt) + 1) if 1 <= n <= longest]
        boundaries = prompt_lengths(self.cluster.engines, longest)
        length = self.random.choice([*near, *near, *boundaries] or [1])
        prompt = job.prompt[:length] + job.prompt[-1] * (length - len(job.prompt))
        self.jobs[index] = replace(job, prompt=prompt)

    def branch(self) -> None:
        """Let a prompt begin as another one does, up to a block boundary or next to one."""
        index, job = self._one()
        if job is None:
            return
        trunk = self.random.choice(self.jobs).prompt
        longest = longest_prompt(self.cluster.engines, job.max_tokens)
        parting = self.random.choice(prompt_lengths(self.cluster.engines, longest) or [1])
        rest = self.random.choice(LETTERS) * max(len(job.prompt) - parting, 0)
        prompt = self.random.choice((trunk, trunk[:parting] + rest))
        self.jobs[index] = replace(job, prompt=prompt)

    def retouch(self) -> None:
        """Give a job another number of output tokens, priority or key."""
        index, job = self._one()
        if job is None:
            return
        keys = job.extra_key, "", *FIRST
        self.jobs[index] = replace(
            job,
            max_tokens=self.random.choice(MAX_TOKENS),
            priority=self.random.choice(PRIORITIES),
            extra_key=self.random.choice(keys) if self.cluster.extra_keys else "",
        )

    def again(self) -> None:
        """Let a prompt come again at the end: alone, or as the beginning of a longer one."""
        _, job = self._one()
        if job is None or len(self.jobs) >= JOBS_MAX:
            return
        name = next(self._free_names(JOBS_MAX))
        longest = longest_prompt(self.cluster.engines, 1)
        lengths = prompt_lengths(self.cluster.engines, longest)
        longer = [n for n in lengths if n > len(job.prompt)]
        length = self.random.choice([len(job.prompt), *longer])
        prompt = job.prompt + self.random.choice(LETTERS) * (length - len(job.prompt))
        self.jobs.append(replace(job, name=name, prompt=prompt, max_tokens=1, parts=()))
        self.events.append(Submit(self.cluster.prefill.name, name))

    def _slice(self) -> tuple[int, int]:
        first = self.random.randrange(len(self.events) + 1)
        return first, first + self.random.randint(1, SLICE_MAX)

    def _one(self) -> tuple[int, Job | None]:
        """Choose a job that is no turn of a conversation: those belong together."""
        followed = {job.follows for job in self.jobs}
        alone = [not job.follows and job.name not in followed for job in self.jobs]
        free = [index for index, is_so in enumerate(alone) if is_so]
        return (index := self.random.choice(free), self.jobs[index]) if free else (0, None)

    def _free_names(self, most: int) -> Iterator[str]:
        """Yield the names among the first ones that no job has."""
        used = {job.name for job in self.jobs}
        return (name for n in range(most) if (name := f"r{n}") not in used)

    def _of_new_jobs(self, jobs: Sequence[Job], events: Sequence[Event]) -> list[Event]:
        """Add the jobs of these events under new names. Returns the events with these names."""
        fresh = self._free_names(len(self.jobs) + len(jobs) + 1)
        wanted = {_request(event) for event in events}
        names = {job.name: next(fresh) for job in jobs if job.name in wanted}
        self.jobs += [
            replace(job, name=names[job.name], follows=names.get(job.follows, ""))
            for job in jobs
            if job.name in names
        ]
        return [
            replace(e, request=e.request.replace(was, names[was], 1))  # type: ignore[union-attr]
            if (was := _request(e)) in names
            else e
            for e in events
        ]


CHANGED: tuple[Callable[[_ChangedRun], None], ...] = (
    _ChangedRun.drop,
    _ChangedRun.move,
    _ChangedRun.repeat,
    _ChangedRun.again,
    _ChangedRun.splice,
    _ChangedRun.resize,
    _ChangedRun.resize,
    _ChangedRun.branch,
    _ChangedRun.retouch,
)
"""The changes, each as often as it is here."""
