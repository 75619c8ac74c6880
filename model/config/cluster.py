"""A cluster: one engine, or a prefill and a decode engine, and its jobs."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.group import Group
from kvproof.model.config.job import Job
from kvproof.model.config.limits import Name, check_declared
from kvproof.model.errors import NotValid, unknown

LoadFailure = Literal["fail", "recompute"]
Direction = Literal["pull", "push"]


class Cluster(Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True, dict=True):
    """Engines and jobs. `aborts`, `losses`, `evictions` and `resets` enable events of the
    environment. `failures` is the most transfers, or loads of a store, that may fail;
    `load_failure` is what the engine then does (`kv_load_failure_policy`). With `sessions`, jobs
    may have parts (see `sessions`). `resets` allows resets of an idle engine;
    `resets_any_time` also allows them under load (see `preemption`). With `oversized`, randomly
    generated jobs may need more blocks than an engine has. With `stray`, a worker may also report a
    transfer a second time, or report a transfer of a removed request; the worker of vLLM 0.32.0's
    NIXL pull connector never does this. With `follow_up_turns`, D keeps the blocks of a finished
    request, and P may load them for the next turn. `transfer` says which side copies the blocks of
    a KV transfer: with `pull`, D reads P's blocks; with `push`, P writes to D's blocks
    (`NixlPushConnector`; see `push`). With `extra_keys`, jobs may have a salt or a LoRA adapter."""

    name: Name
    engines: Annotated[tuple[EngineConfig, ...], Meta(min_length=1, max_length=2)]
    jobs: Annotated[tuple[Job, ...], Meta(max_length=50)] = ()
    aborts: bool = False
    failures: Annotated[int, Meta(ge=0, le=100)] = 0
    losses: bool = False
    evictions: bool = False
    resets: bool = False
    load_failure: LoadFailure = "fail"
    sessions: bool = False
    resets_any_time: bool = False
    oversized: bool = False
    stray: bool = False
    follow_up_turns: bool = False
    transfer: Direction = "pull"
    extra_keys: bool = False

    checks: ClassVar[tuple[Callable[["Cluster"], None], ...]] = ()
    """Further checks of a new cluster: the table of features, which the package `config` sets."""

    def __post_init__(self) -> None:
        check_declared(self, "cluster")
        _check_names("engine", self.engines, "engines")
        _check_names("job", self.jobs, "jobs")
        _check_roles(self)
        _check_follows(self)
        if self.disaggregated:
            _check_pair(self.prefill, self.decode)
        for check in self.checks:
            check(self)

    @property
    def disaggregated(self) -> bool:
        """Whether the cluster has a prefill engine and a decode engine."""
        return len(self.engines) == 2

    @property
    def pushes(self) -> bool:
        """Whether P writes to D's blocks (push). Otherwise D reads P's blocks (pull)."""
        return self.transfer == "push"

    @property
    def by_priority(self) -> bool:
        """Whether some engine schedules by the priority of jobs."""
        return any(e.by_priority for e in self.engines)

    @cached_property
    def prefill(self) -> EngineConfig:
        """The engine a job runs on first."""
        return next(e for e in self.engines if e.role in ("both", "prefill"))

    @cached_property
    def decode(self) -> EngineConfig:
        """The engine a job runs on last."""
        return next(e for e in self.engines if e.role in ("both", "decode"))

    def engine(self, name: str) -> EngineConfig:
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
        """The next turn of this job's conversation, None where there is none."""
        return next((job for job in self.jobs if job.follows == name), None)

    def carrying(self, *jobs: Job) -> "Cluster":
        """The same cluster with other jobs."""
        return replace(self, jobs=jobs)


def _check_names(what: str, named: Sequence[EngineConfig | Job], field: str) -> None:
    earlier: set[str] = set()
    for index, one in enumerate(named):
        if one.name in earlier:
            raise NotValid(
                f"Two {field} have the name {one.name}. Use another name for each {what}.",
                f"{field}[{index}].name",
            )
        earlier.add(one.name)


def _check_follows(cluster: Cluster) -> None:
    """Check that each job follows an earlier one: so there is no circle."""
    earlier: set[str] = set()
    for index, job in enumerate(cluster.jobs):
        if job.follows and job.follows not in earlier:
            raise NotValid(
                f"Job {job.name} follows {job.follows}, and no earlier job has this name. "
                "Use the name of an earlier job.",
                f"jobs[{index}].follows",
            )
        earlier.add(job.name)


def _check_roles(cluster: Cluster) -> None:
    roles = sorted(e.role for e in cluster.engines)
    if roles not in (["both"], ["decode", "prefill"]):
        raise NotValid(
            f"A cluster cannot have the roles {roles}. Use one engine of role both, or one "
            "prefill and one decode engine.",
            "engines",
        )


def _check_pair(p: EngineConfig, d: EngineConfig) -> None:
    """Check that the blocks of P and D can be paired, group by group and kernel block by kernel
    block. Raises NotValid where they cannot."""

    def kind(group: Group) -> tuple[str, int, str]:
        return group.kind, group.window, group.mode

    if [*map(kind, p.groups)] != [*map(kind, d.groups)]:
        raise NotValid(
            "P and D have different cache groups. Use the same kinds, windows and modes in "
            "the same order on both."
        )
    if [g.eagle for g in p.groups] != [g.eagle for g in d.groups]:
        raise NotValid(
            "The drafter has layers in different cache groups on P and on D, which NIXL cannot "
            "pair. Use eagle for the same groups on both."
        )
    for i, group in enumerate(p.groups):
        if group.attention and p.kernel_tokens(i) != d.kernel_tokens(i):
            raise NotValid(
                f"The kernel blocks of group {i} hold {p.kernel_tokens(i)} tokens on P and "
                f"{d.kernel_tokens(i)} on D. Use equal block_size / physical_per_logical."
            )
