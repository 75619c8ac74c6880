"""A cluster: one engine, or a prefill and a decode engine, and the traffic they carry."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from kvproof.model.config.engine import Engine
from kvproof.model.config.group import Group
from kvproof.model.config.job import Job
from kvproof.model.config.limits import one_of
from kvproof.model.errors import UsageError, unknown

LOAD_FAILURES = ("fail", "recompute")
TRANSFERS = ("pull", "push")


@dataclass(frozen=True)
class Cluster:
    """Engines and traffic. `aborts`, `losses`, `evictions` and `resets` switch on events of the
    environment; `failures` bounds how many transfers, or loads of a store, may fail. With
    `sessions` jobs may come in parts (see `sessions`). `resets` are those of an idle engine; with
    `resets_any_time` they come under load too (see `resets`). With `oversized` drawn jobs
    may need more blocks than an engine has. With `stray` a worker also reports a transfer again, or
    one of a request that is gone; that of vLLM 0.32.0's NIXL pull connector keeps from it by
    itself. With `follow_up_turns` D keeps what it has of a request it finished, and P may load that
    for the next turn. `transfer` says who moves the blocks of a KV transfer: with
    `pull` D reads those of P; with `push` P writes those of D (`NixlPushConnector`; see `push`)."""

    name: str
    engines: tuple[Engine, ...]
    jobs: tuple[Job, ...] = ()
    aborts: bool = False
    failures: int = 0
    losses: bool = False
    evictions: bool = False
    resets: bool = False
    load_failure: str = "fail"
    sessions: bool = False
    resets_any_time: bool = False
    oversized: bool = False
    stray: bool = False
    follow_up_turns: bool = False
    transfer: str = "pull"

    checks: ClassVar[tuple[Callable[["Cluster"], None], ...]] = ()
    """What a new cluster is asked besides: the table of features, which the package hands in."""

    def __post_init__(self) -> None:
        _check_engines(self)
        one_of("load failure policy", self.load_failure, LOAD_FAILURES)
        one_of("transfer", self.transfer, TRANSFERS)
        if self.disaggregated:
            _check_pair(self.prefill, self.decode)
        for check in self.checks:
            check(self)

    @property
    def disaggregated(self) -> bool:
        """Whether this is a prefill node and a decode node."""
        return len(self.engines) == 2

    @property
    def pushes(self) -> bool:
        """Whether P writes into D's blocks, where otherwise D reads P's."""
        return self.transfer == "push"

    @property
    def by_priority(self) -> bool:
        """Whether the priority of jobs counts on some engine."""
        return any(e.by_priority for e in self.engines)

    @cached_property
    def prefill(self) -> Engine:
        """The engine a job runs on first."""
        return next(e for e in self.engines if e.role in ("both", "prefill"))

    @cached_property
    def decode(self) -> Engine:
        """The engine a job runs on last."""
        return next(e for e in self.engines if e.role in ("both", "decode"))

    def engine(self, name: str) -> Engine:
        """The engine of this name."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        raise unknown("engine", name, (e.name for e in self.engines))

    def job(self, name: str) -> Job:
        """The job of this name."""
        for job in self.jobs:
            if job.name == name:
                return job
        raise unknown("job", name, (j.name for j in self.jobs))

    def follow_up(self, name: str) -> Job | None:
        """The job that follows this one, if there is one."""
        return next((job for job in self.jobs if job.follows == name), None)

    def carrying(self, *jobs: Job) -> "Cluster":
        """The same cluster with other traffic."""
        return dataclasses.replace(self, jobs=jobs)


def _check_engines(cluster: Cluster) -> None:
    names = [e.name for e in cluster.engines]
    if not names or len(set(names)) < len(names):
        raise UsageError(
            f"The engines {names} are none or share a name. Use one or two engines with "
            "different names."
        )
    roles = sorted(e.role for e in cluster.engines)
    if roles not in (["both"], ["decode", "prefill"]):
        raise UsageError(
            f"A cluster of roles {roles} is not known. Use one engine of role both, or one "
            "prefill and one decode engine."
        )


def _check_pair(p: Engine, d: Engine) -> None:
    """P and D pair their blocks group by group, kernel block by kernel block."""

    def kind(group: Group) -> tuple[str, int, str]:
        return group.kind, group.window, group.mode

    if [*map(kind, p.groups)] != [*map(kind, d.groups)]:
        raise UsageError(
            "P and D have different cache groups. Use the same kinds, windows and modes in "
            "the same order on both."
        )
    if [g.eagle for g in p.groups] != [g.eagle for g in d.groups]:
        raise UsageError(
            "The drafter has layers in other cache groups on P than on D, which NIXL could not "
            "pair. Use eagle for the same groups on both."
        )
    for i, group in enumerate(p.groups):
        if group.attention and p.kernel_tokens(i) != d.kernel_tokens(i):
            raise UsageError(
                f"The kernel blocks of group {i} hold {p.kernel_tokens(i)} tokens on P and "
                f"{d.kernel_tokens(i)} on D. Use equal block_size / physical_per_logical."
            )
