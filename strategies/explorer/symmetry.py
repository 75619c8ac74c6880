"""The symmetries of the model: exchanging equal jobs, and renaming blocks.

A *renaming* exchanges the names of jobs whose prompts are equal up to renaming tokens. The ids of
the blocks of an engine may be exchanged too; the order of the free queue is kept, because it
decides which block is evicted. Both turn a run of the model into a run of the model, because the
model only compares names, tokens and ids for equality. `gates.symmetry_differs` checks this on a
whole scope. Engines need no renaming: a cluster has at most one engine of each role.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import asdict

from kvproof.model.arithmetic import counts
from kvproof.model.config import REVERSE, Cluster, Job
from kvproof.model.environment import turns
from kvproof.model.errors import UsageError
from kvproof.model.events import Event
from kvproof.model.ghost_state import Ghost
from kvproof.model.state import DRAFT, NULL, SAMPLED, Engine, Lists, Request, Transfer

JOBS_MAX = 5
"""The maximum number of jobs with symmetry; more jobs would have too many renamings."""

ALIKE = ("max_tokens", "embeds", "priority", "extra_key")
"""The fields that must be equal in exchanged jobs; their prompts are equal up to renaming
tokens."""

FIXED = frozenset((SAMPLED, DRAFT))
"""Tokens that no renaming changes."""

Ids = tuple[int, ...]
"""The new id of each block of an engine, by its old one; the null block keeps its own."""


class Renaming(NamedTuple):
    """The new name of each job by its old one, and of each token."""

    jobs: tuple[tuple[str, str], ...]
    tokens: tuple[tuple[str, str], ...]

    def job(self, name: str) -> str:
        """The new name of a job, or of its reverse transfer."""
        job = name.removesuffix(REVERSE)
        return dict(self.jobs)[job] + name[len(job) :]

    def text(self, tokens: str) -> str:
        """A prompt or prefix in the new tokens."""
        return tokens.translate({ord(old): new for old, new in self.tokens})

    def after(self, first: "Renaming") -> "Renaming":
        """This renaming after another one."""
        jobs = tuple((old, self.job(new)) for old, new in first.jobs)
        return Renaming(jobs, tuple((old, self.text(new)) for old, new in first.tokens))

    @property
    def inverse(self) -> "Renaming":
        """The renaming that undoes this one."""
        return Renaming(
            tuple(sorted((new, old) for old, new in self.jobs)),
            tuple(sorted((new, old) for old, new in self.tokens)),
        )


def _prompt(job: Job) -> str:
    """The prompt as it reaches an engine (`model.cluster.arrival`), with all its parts."""
    return job.keyed_prompt + "".join(job.keyed_parts)


def _between(jobs: Sequence[Job], images: Sequence[Job]) -> Renaming | None:
    """The renaming that maps each job to its image, None if there is none."""
    forth: dict[str, str] = {}
    back: dict[str, str] = {}
    for job, image in zip(jobs, images, strict=True):
        if any(getattr(job, what) != getattr(image, what) for what in ALIKE):
            return None
        ours, theirs = _prompt(job), _prompt(image)
        if len(ours) != len(theirs) or list(map(len, job.parts)) != list(map(len, image.parts)):
            return None
        for a, b in zip(ours, theirs, strict=True):
            # Answers and drafts keep their tokens, so these stand for themselves in a prompt too.
            if a != b and not FIXED.isdisjoint((a, b)):
                return None
            if forth.setdefault(a, b) != b or back.setdefault(b, a) != a:
                return None
    names = zip((j.name for j in jobs), (i.name for i in images), strict=True)
    return Renaming(tuple(sorted(names)), tuple(sorted(forth.items())))


def renamings(cluster: Cluster) -> tuple[Renaming, ...]:
    """All renamings of the jobs of a cluster, the identity first. If a job may follow another job,
    the identity is the only one. Raises UsageError if there are too many jobs."""
    if len(cluster.jobs) > JOBS_MAX:
        raise UsageError(
            f"Symmetry is looked for in up to {JOBS_MAX} jobs, and {cluster.name} has "
            f"{len(cluster.jobs)}. Use fewer jobs, or leave --symmetry out."
        )
    orders = [cluster.jobs] if cluster.follow_up_turns else itertools.permutations(cluster.jobs)
    images = (_between(cluster.jobs, order) for order in orders)
    return tuple(renaming for renaming in images if renaming is not None)


def renamed_engine(engine: Engine, by: Renaming) -> Engine:
    """An engine with jobs and tokens renamed."""

    def request(r: Request) -> Request:
        return r._replace(id=by.job(r.id), prompt=by.text(r.prompt))

    def key(k: Any) -> Any:
        return k and (k[0], by.text(k[1]))

    return engine._replace(
        blocks=tuple(
            b._replace(key=key(b.key), also=tuple(sorted(map(key, b.also)))) for b in engine.blocks
        ),
        cached=tuple(sorted((key(k), blocks) for k, blocks in engine.cached)),
        memory=tuple(
            m and m._replace(slots=tuple(by.text(s) for s in m.slots)) for m in engine.memory
        ),
        requests=tuple(map(request, engine.requests)),
        running=tuple(map(by.job, engine.running)),
        step=engine.step and tuple((by.job(name), tokens) for name, tokens in engine.step),
        steps=tuple(
            tuple(f._replace(request=by.job(f.request)) for f in step) for step in engine.steps
        ),
        pending=tuple(sorted((by.job(name), count) for name, count in engine.pending)),
        stored=tuple(sorted(map(by.text, engine.stored))),
        ghost=_renamed_ghost(engine.ghost, by),
    )


def _renamed_ghost(ghost: Ghost, by: Renaming) -> Ghost:
    return Ghost(
        served=tuple(sorted(s._replace(prompt=by.text(s.prompt)) for s in ghost.served)),
        mirror=tuple(sorted((group, by.text(prefix)) for group, prefix in ghost.mirror)),
        shared=tuple((by.job(name), tokens) for name, tokens in ghost.shared),
    )


def renamed_between(between: Sequence[Any], by: Renaming) -> tuple[Any, ...]:
    """The fields of a state other than its engines, with jobs renamed."""
    transfers, ended, failures = between
    return (
        tuple(sorted(t._replace(request=by.job(t.request)) for t in transfers)),
        tuple(sorted((engine, by.job(name)) for engine, name in ended)),
        failures,
    )


def renamed_event(event: Event, by: Renaming) -> Event:
    """A bare event with jobs renamed."""
    data = asdict(event)
    for name in ("request", "needy"):
        if name in data:
            data[name] = by.job(data[name])
    if "accepted" in data:
        data["accepted"] = {by.job(name): count for name, count in data["accepted"].items()}
    if data.get("failed"):
        data["failed"] = by.job(data["failed"])
    if data.get("chose"):
        data["chose"] = tuple(renamed_event(c, by) for c in data["chose"])
    return type(event)(**data)


def first_ids(engine: Engine) -> Ids:
    """New block ids in the order of first occurrence: in block tables, in blocks that wait for a
    step to end, in the free queue, then all other blocks."""
    new = {NULL: NULL}
    tables = (block for r in engine.requests for table in r.tables for block in table)
    waiting = (block for _, blocks in engine.deferred for block in blocks)
    for block in itertools.chain(tables, waiting, engine.free, range(len(engine.blocks))):
        new.setdefault(block, len(new))
    return tuple(new[block] for block in range(len(engine.blocks)))


def with_ids(engine: Engine, ids: Ids) -> Engine:
    """An engine whose blocks have new ids."""
    old = sorted(range(len(ids)), key=ids.__getitem__)

    def many(blocks: Sequence[int]) -> Ids:
        return tuple(ids[b] for b in blocks)

    return engine._replace(
        blocks=tuple(engine.blocks[b] for b in old),
        memory=tuple(engine.memory[b] for b in old),
        free=many(engine.free),
        cached=tuple((key, many(blocks)) for key, blocks in engine.cached),
        steps=tuple(
            tuple(f._replace(blocks=tuple(sorted(many(f.blocks)))) for f in step)
            for step in engine.steps
        ),
        deferred=tuple((steps, many(blocks)) for steps, blocks in engine.deferred),
        requests=tuple(
            r._replace(tables=tuple(map(many, r.tables)), states=many(r.states)) if r.tables else r
            for r in engine.requests
        ),
    )


def transfers_with_ids(
    cluster: Cluster, transfers: Sequence[Transfer], p: Ids, d: Ids
) -> tuple[Transfer, ...]:
    """Transfers after the blocks of P and D have got new ids."""

    def many(lists: Lists, ids: Ids) -> Lists:
        return tuple(tuple(ids[b] for b in blocks) for blocks in lists)

    def kernel(blocks: Ids, ids: Ids, ratio: int) -> Ids:
        pairs = (counts.logical_block(b, ratio) for b in blocks)
        return tuple(ids[block] * ratio + part for block, part in pairs)

    result = []
    for transfer in transfers:
        source, _, sink, _ = turns.parties(cluster, transfer.request)
        giver, taker = (d, p) if turns.is_reverse(transfer.request) else (p, d)
        pairs = []
        for group, (ours, theirs) in zip(sink.groups, transfer.pairs, strict=False):
            ratios = (1, 1)
            if group.attention:
                ratios = sink.physical_per_logical, source.physical_per_logical
            pairs.append((kernel(ours, taker, ratios[0]), kernel(theirs, giver, ratios[1])))
        result.append(
            transfer._replace(
                remote=many(transfer.remote, giver),
                local=many(transfer.local, taker),
                pairs=tuple(pairs),
            )
        )
    return tuple(result)
