"""Engines and requests made by hand, for direct tests of the parts of the reference.

A prompt is written in letters. A block is cached under the prefix that ends with its last token, so
`cached={(0, "ab"): 1}` says that block 1 of group 0 has the first two tokens of "ab...".
"""

from collections.abc import Mapping
from typing import Any

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import NULL, WAITING, Block, Engine, Key, Request, State, Table, Transfer

FULL = Group("full", 2)
WINDOW = Group("window", 2, window=3)
MAMBA = Group("mamba", 2)
EAGLE = Group("full", 2, eagle=True)
CLUSTER_OPTIONS = set(Cluster.__struct_fields__)
TOKENS = "abcdefgh"
ROLES = {"P": "prefill", "D": "decode"}


def pool_of(
    count: int = 6,
    *,
    held: Mapping[int, int] | None = None,
    cached: Mapping[Key, int | tuple[int, ...]] | None = None,
    free: Table | None = None,
    name: str = "E",
    **fields: Any,
) -> Engine:
    """An engine with `count` blocks. `held` are the references of blocks in use; all others are
    free, in the order of their ids or that of `free`."""
    held = held or {}
    blocks = [Block(refs=held.get(number, 0)) for number in range(count)]
    entries = {k: (b,) if isinstance(b, int) else b for k, b in (cached or {}).items()}
    for key, under in sorted(entries.items()):
        for number in under:
            block = blocks[number]
            first = block.key is None
            blocks[number] = (
                block._replace(key=key) if first else block._replace(also=(*block.also, key))
            )
    if free is None:
        free = tuple(b for b in range(1, count) if b not in held)
    return Engine(
        name,
        blocks=tuple(blocks),
        free=free,
        cached=tuple(sorted(entries.items())),
        memory=(None,) * count,
        **fields,
    )


def cached(*lengths: tuple[int, ...], count: int = 12) -> Engine:
    """An engine where each group has the prefixes of TOKENS of these lengths cached, in blocks that
    are numbered from 1 on."""
    keys = [(group, TOKENS[:n]) for group, each in enumerate(lengths) for n in each]
    return pool_of(count, cached={key: number for number, key in enumerate(keys, 1)})


def request(prompt: str = "abcd", *tables: Table, name: str = "r0", **fields: Any) -> Request:
    """A request with these block tables, one a group."""
    fields = {"status": WAITING, "submitted_prompt_tokens": len(prompt), "max_tokens": 1} | fields
    return Request(name, prompt=prompt, tables=tables, **fields)


def running(prompt: str, *tables: tuple[int, ...], computed: int, **fields: Any) -> Request:
    """A request that runs and has computed so many tokens."""
    counted = fields.pop("num_cached_blocks", (0,) * len(tables))
    fields = {"status": "running", "computed": computed, "num_cached_blocks": counted} | fields
    return request(prompt, *tables, **fields)


def serving(*requests: Request, count: int = 8, **options: Any) -> Engine:
    """An engine with these requests, whose blocks have one reference for each place in a table.
    Those that run are in its running queue."""
    held: dict[int, int] = {}
    for each in requests:
        for table in each.tables:
            for block in set(table) - {NULL}:
                held[block] = held.get(block, 0) + 1
    running = tuple(r.id for r in requests if r.status == "running")
    return pool_of(count, held=held, requests=requests, running=running, **options)


def config(*groups: Group, **options: Any) -> EngineConfig:
    """The configuration of an engine, by default with one group of full attention."""
    return EngineConfig("E", groups or (FULL,), **{"num_blocks": 8} | options)


def pair(
    *groups: Group, jobs: tuple[Job, ...] = (Job("r0", "abcd", 2),), **options: Any
) -> Cluster:
    """A cluster of P, which prefills, and D, which decodes. Options that no engine has are the
    cluster's."""
    of_engines = set(EngineConfig.__struct_fields__)
    shared = {k: options.pop(k) for k in list(options) if k in of_engines}
    made = (EngineConfig(n, groups or (FULL,), role=role, **shared) for n, role in ROLES.items())
    return Cluster("by hand", tuple(made), jobs, **options)


def on_prefill(prompt: str, *tables: Table, **fields: Any) -> Request:
    """A request of P."""
    return request(prompt, *tables, route="to_decode", **fields)


def on_decode(prompt: str, *tables: Table, **fields: Any) -> Request:
    """A request of D."""
    return request(prompt, *tables, route="from_prefill", **fields)


def both(p: Request | None = None, d: Request | None = None, *transfers: Transfer) -> State:
    """P and D with at most one request each."""
    engines = (
        serving(*[r for r in (p,) if r], name="P"),
        serving(*[r for r in (d,) if r], name="D"),
    )
    return State(engines, transfers)


def cluster(cfg: EngineConfig, *jobs: Job, **options: Any) -> Cluster:
    """A cluster of one engine."""
    return Cluster("by hand", (cfg,), jobs or (Job("r0", "abcd", 2),), **options)


def step(
    cfg: EngineConfig,
    *requests: Request,
    jobs: tuple[Job, ...] = (),
    **fields: Any,
) -> SchedulerStep:
    """A step in the making of an engine with these requests, one job each."""
    options = {k: fields.pop(k) for k in list(fields) if k in CLUSTER_OPTIONS}
    jobs = jobs or tuple(Job(r.id, r.prompt, r.max_tokens) for r in requests)
    made = cluster(cfg, *jobs, **options)
    state = State((serving(*requests, **{"count": cfg.num_blocks} | fields),))
    return SchedulerStep(made, state, "E")
