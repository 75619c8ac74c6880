"""Named clusters: the smallest in which each part of the machine has something to do.

Block size 2 throughout, pools of a few blocks, prompts of a few tokens.
"""

import dataclasses
from pathlib import Path
from typing import Any

from kvproof.model.config import Cluster, Engine, Group, Job
from kvproof.model.config.config_json import parse
from kvproof.model.errors import UsageError, unknown
from kvproof.model.presets import random_clusters

FULL = Group("full", 2)
WIDER = Group("full", 4)
WINDOW = Group("window", 2, window=3)
WIDE = Group("window", 2, window=4)
NARROW = Group("window", 2, window=2)
MAMBA = Group("mamba", 2)
WIDER_MAMBA = Group("mamba", 4)
STATE = Group("mamba", 4096, mode="none")
EAGLE = Group("full", 2, eagle=True)


def _one(name: str, *groups: Group, jobs: tuple[Job, ...], **options: object) -> Cluster:
    blocks = int(str(options.pop("num_blocks", 9)))
    chunk = int(str(options.pop("chunk_tokens", 8)))
    caching = options.pop("prefix_caching", True) is True
    store = options.pop("store", False) is True
    policy = str(options.pop("policy", "fcfs"))
    drafts = int(str(options.pop("drafts", 0)))
    engine = Engine(
        "E",
        groups,
        blocks,
        chunk_tokens=chunk,
        prefix_caching=caching,
        store=store,
        policy=policy,
        drafts=drafts,
    )
    return Cluster(name, (engine,), jobs, **options)  # type: ignore[arg-type]


def _pd(name: str, *groups: Group, jobs: tuple[Job, ...], **options: object) -> Cluster:
    blocks = int(str(options.pop("num_blocks", 9)))
    decode_blocks = int(str(options.pop("decode_blocks", blocks)))
    chunk = int(str(options.pop("chunk_tokens", 8)))
    drafts = int(str(options.pop("drafts", 0)))
    most = int(str(options.pop("max_requests", 256)))
    caching = options.pop("prefix_caching", True) is True
    shared: dict[str, Any] = {"max_requests": most, "prefix_caching": caching, "drafts": drafts}
    p = Engine("P", groups, blocks, "prefill", chunk, **shared)
    d = Engine("D", groups, decode_blocks, "decode", chunk, **shared)
    return Cluster(name, (p, d), jobs, **options)  # type: ignore[arg-type]


def _ratios(name: str, *jobs: Job, prefill: int, decode: int) -> Cluster:
    """P and D with kernel blocks of 2 tokens, so many of them to a block."""
    p = Engine("P", (Group("full", 2 * prefill),), 12, "prefill", 8, prefill)
    d = Engine("D", (Group("full", 2 * decode),), 12, "decode", 8, decode)
    return Cluster(name, (p, d), jobs)


def _retaining(cluster: Cluster, interval: int) -> Cluster:
    """The cluster with sparse retention on its engines."""
    engines = tuple(dataclasses.replace(e, retention=interval) for e in cluster.engines)
    return dataclasses.replace(cluster, engines=engines)


def _matching(unit: int, cluster: Cluster) -> Cluster:
    """The cluster with a hash every so many tokens."""
    engines = tuple(dataclasses.replace(e, match_unit=unit) for e in cluster.engines)
    return dataclasses.replace(cluster, engines=engines)


def _telling(cluster: Cluster) -> Cluster:
    """The cluster with KV events."""
    engines = tuple(dataclasses.replace(e, kv_events=True) for e in cluster.engines)
    return dataclasses.replace(cluster, engines=engines)


def _hashing_next(cluster: Cluster) -> Cluster:
    """The cluster with hashes that cover the next token."""
    engines = tuple(dataclasses.replace(e, hash_lookahead_tokens=1) for e in cluster.engines)
    return dataclasses.replace(cluster, engines=engines)


def _overlapping(cluster: Cluster, *names: str) -> Cluster:
    """The cluster with async scheduling on the engines of these names, by default on all."""
    engines = (
        dataclasses.replace(e, steps_in_flight=2) if not names or e.name in names else e
        for e in cluster.engines
    )
    return dataclasses.replace(cluster, engines=tuple(engines))


AB = (Job("r0", "abcd", 2), Job("r1", "abxyz", 2))
ASYNC = (Job("r0", "abcd", 3), Job("r1", "abx", 2))
APART = (Job("r0", "abc", 3), Job("r1", "xyz", 3))
RESENT_8 = (Job("r0", "abcdefgh"), Job("r1", "abcdefgh"))
RESENT_7 = (Job("r0", "abcdefg"), Job("r1", "abcdstu"), Job("r2", "abcdefg"))
PARTING = (Job("r0", "abcde", 3), Job("r1", "abcdx", 2))
COPIED = (Job("r0", "abcd"), Job("r1", "abcd"), Job("r2", "wxyz"))
SIBLINGS = (Job("r0", "abcdefgh"), Job("r1", "abcdstuv"), Job("r2", "abcdxy"))
RESENT = (Job("r0", "abcdef"), Job("r1", "abcdef"))
TWO_TURNS = (Job("r0", "abc", 2), Job("r1", "abc..de", follows="r0"))
ASKED_AGAIN = (Job("r0", "abc", 4), Job("r1", "abc", follows="r0"))
ENDS_INSIDE = (Job("r0", "abcdefg", 3), Job("r1", "abcdefg"), Job("r2", "abcdefxyz"))
TWICE = (Job("r0", "abcde", 2), Job("r1", "abcde"))

_PRESETS = (
    _one("full", FULL, jobs=(Job("r0", "abcd", 2), Job("r1", "abcde")), num_blocks=5),
    _one("full-evicting", FULL, jobs=(Job("r0", "abcd", 2), Job("r1", "wxyz", 2)), num_blocks=4),
    _one("window", FULL, WINDOW, jobs=AB, num_blocks=9),
    _one("window-wide", FULL, WIDE, jobs=(Job("r0", "abcdefg"), Job("r1", "abcdefg"))),
    _one("hybrid", FULL, MAMBA, jobs=(Job("r0", "abcdef", 2), Job("r1", "abcdx", 2))),
    _one(
        "hybrid-chunked",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcdef", 2), Job("r1", "abcdef")),
        chunk_tokens=3,
    ),
    _one(
        "hybrid-narrow", FULL, MAMBA, jobs=(Job("r0", "abcde"), Job("r1", "abcx")), chunk_tokens=1
    ),
    _one("hybrid-evicting", FULL, MAMBA, jobs=TWICE, evictions=True),
    _one(
        "hybrid-siblings",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcdef"), Job("r1", "abcxyz"), Job("r2", "abcuvw")),
        num_blocks=20,
    ),
    _one("state", FULL, STATE, jobs=AB, num_blocks=8, prefix_caching=False),
    _one(
        "three", FULL, WINDOW, MAMBA, jobs=(Job("r0", "abcde"), Job("r1", "abcde")), num_blocks=14
    ),
    _one(
        "oversized",
        FULL,
        jobs=(Job("r0", "abcdefg"), Job("r1", "abc", 2)),
        num_blocks=4,
        oversized=True,
        aborts=True,
    ),
    _one(
        "oversized-hybrid",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcde"), Job("r1", "ab", 2)),
        num_blocks=5,
        oversized=True,
    ),
    _one("store", FULL, jobs=AB, num_blocks=5, store=True, resets=True),
    _one("store-window", FULL, WINDOW, jobs=TWICE, store=True, resets=True),
    _one(
        "store-hybrid",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcde"), Job("r1", "abcdx")),
        num_blocks=8,
        chunk_tokens=2,
        store=True,
        evictions=True,
    ),
    _one(
        "store-tight",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcde"), Job("r1", "abcde"), Job("r2", "x", 2)),
        num_blocks=7,
        store=True,
        resets=True,
    ),
    _one("store-three", FULL, WINDOW, MAMBA, jobs=TWICE, num_blocks=14, store=True, resets=True),
    _one(
        "store-state",
        *(FULL, STATE),
        jobs=TWICE,
        num_blocks=8,
        chunk_tokens=2,
        prefix_caching=False,
        store=True,
    ),
    _one(
        "drafts",
        EAGLE,
        jobs=(Job("r0", "abcde", 3), Job("r1", "abcdx", 2)),
        num_blocks=9,
        drafts=2,
    ),
    _one("drafts-aligned", EAGLE, jobs=(Job("r0", "abcd"), Job("r1", "abcd")), drafts=1),
    _one("ngram-drafts", FULL, jobs=AB, num_blocks=7, drafts=2),
    _one(
        "window-drafts",
        *(Group("full", 1), Group("window", 1, window=2, eagle=True), Group("window", 4, window=4)),
        jobs=(Job("r0", "abcdef"), Job("r1", "abcdef", 2)),
        num_blocks=20,
        drafts=1,
    ),
    _one("state-drafts", EAGLE, STATE, jobs=APART, num_blocks=16, prefix_caching=False, drafts=1),
    _one(
        "hybrid-drafts",
        *(EAGLE, MAMBA),
        jobs=(Job("r0", "abcdefg", 3), Job("r1", "abcdefg", 2)),
        num_blocks=20,
        drafts=1,
    ),
    _one(
        "hybrid-drafts-cut",
        *(Group("full", 4, eagle=True), Group("mamba", 4)),
        jobs=(Job("r0", "abcdefghij", 2), Job("r1", "x", 4)),
        num_blocks=20,
        chunk_tokens=5,
        drafts=3,
    ),
    _hashing_next(_one("lookahead-hashes", EAGLE, jobs=PARTING, num_blocks=9, drafts=2)),
    _hashing_next(_overlapping(_one("lookahead-hashes-async", EAGLE, jobs=PARTING, drafts=1))),
    _hashing_next(
        _one(
            "lookahead-hashes-unequal",
            *(Group("full", 1), Group("window", 1, window=2, eagle=True)),
            Group("window", 4, window=4),
            jobs=(Job("r0", "abcdef"), Job("r1", "abcdef", 2)),
            num_blocks=20,
            drafts=1,
        )
    ),
    _hashing_next(
        _retaining(
            _one(
                "lookahead-hashes-sparse",
                *(EAGLE, WINDOW, MAMBA),
                jobs=RESENT_7,
                num_blocks=24,
                drafts=1,
            ),
            0,
        )
    ),
    _hashing_next(
        _telling(
            _one("lookahead-hashes-events", EAGLE, MAMBA, jobs=PARTING, num_blocks=12, drafts=1)
        )
    ),
    _pd("pd", FULL, MAMBA, jobs=(Job("r0", "abcde", 2), Job("r1", "abcdx", 2))),
    _pd("pd-full", FULL, jobs=(Job("r0", "abcd", 2), Job("r1", "abcdx")), num_blocks=7),
    _pd("pd-window", FULL, WINDOW, jobs=(Job("r0", "abcd", 2), Job("r1", "abcdx"))),
    _pd("pd-window-narrow", FULL, NARROW, jobs=(Job("r0", "abcd", 2), Job("r1", "abcdx"))),
    _pd("pd-hitting", FULL, MAMBA, jobs=TWICE),
    _pd(
        "pd-default",
        *(FULL, WINDOW, MAMBA),
        jobs=(Job("r0", "abcdefgh", 2), Job("r1", "abcdwxyz", 2)),
        num_blocks=14,
        decode_blocks=12,
        chunk_tokens=4,
        aborts=True,
        failures=1,
        load_failure="recompute",
    ),
    _pd("pd-three", FULL, WINDOW, MAMBA, jobs=TWICE, num_blocks=12),
    _pd(
        "pd-preempting",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcdefghijkl"), Job("r1", "wxyz")),
        num_blocks=11,
        decode_blocks=16,
        chunk_tokens=4,
    ),
    _pd(
        "pd-state",
        *(FULL, STATE),
        jobs=(Job("r0", "abcde", 2), Job("r1", "abcdx", 2)),
        prefix_caching=False,
    ),
    _pd(
        "pd-state-preempting",
        *(FULL, STATE),
        jobs=(Job("r0", "abcdefghijkl"), Job("r1", "wxyz")),
        decode_blocks=16,
        chunk_tokens=4,
        prefix_caching=False,
    ),
    _pd("pd-embeds", FULL, MAMBA, jobs=(Job("r0", "ABCDE", 2, embeds=True),)),
    _pd("pd-repeating", FULL, MAMBA, jobs=(Job("r0", "abcdef", 2), Job("r1", "abcdef"))),
    _pd("pd-aborting", FULL, MAMBA, jobs=(Job("r0", "abcde", 2), Job("r1", "xyz")), aborts=True),
    _pd("pd-failing", FULL, MAMBA, jobs=TWICE, failures=1),
    _pd("pd-recomputing", FULL, MAMBA, jobs=TWICE, failures=1, load_failure="recompute"),
    _pd("pd-evicting", FULL, WINDOW, MAMBA, jobs=TWICE[:1], num_blocks=14, evictions=True),
    _pd("pd-superseding", FULL, MAMBA, jobs=(Job("r0", "abc"), Job("r1", "abcd"))),
    _pd("pd-covering", FULL, MAMBA, jobs=(Job("r0", "abcdef"), Job("r1", "abcde")), num_blocks=12),
    _pd(
        "pd-tight",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcde"), Job("r1", "vwxyz")),
        num_blocks=12,
        decode_blocks=7,
    ),
    _pd(
        "pd-remnant",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abcd"), Job("r1", "abxyz"), Job("r2", "abcde")),
        num_blocks=16,
        decode_blocks=7,
    ),
    _pd("pd-stray", FULL, jobs=(Job("r0", "abc", 2),), aborts=True, stray=True),
    _pd("pd-one-token", FULL, MAMBA, jobs=(Job("r0", "a", 2), Job("r1", "ab"))),
    _pd("pd-losing", FULL, MAMBA, jobs=(Job("r0", "abcde", 2),), losses=True, aborts=True),
    _one(
        "priority",
        FULL,
        jobs=(Job("r0", "abc", 4, priority=1), Job("r1", "xyz", 3), Job("r2", "u", 2)),
        num_blocks=6,
        policy="priority",
    ),
    _one(
        "priority-hybrid",
        *(FULL, MAMBA),
        jobs=(Job("r0", "abc", 3, priority=1), Job("r1", "xy", 2)),
        num_blocks=7,
        chunk_tokens=3,
        policy="priority",
    ),
    _pd(
        "pd-limited",
        FULL,
        jobs=(Job("r0", "abc", 2), Job("r1", "xyz", 2)),
        losses=True,
        max_requests=1,
    ),
    _overlapping(_one("async", FULL, WINDOW, jobs=ASYNC, chunk_tokens=3, aborts=True)),
    _overlapping(_one("async-preempting", FULL, jobs=APART, num_blocks=5, aborts=True)),
    _overlapping(
        _one("hybrid-async", FULL, MAMBA, jobs=(Job("r0", "abcde", 3), Job("r1", "abcdx", 2)))
    ),
    _overlapping(_one("async-drafts", EAGLE, jobs=ASYNC, num_blocks=8, drafts=1)),
    _overlapping(
        _one(
            "async-drafts-window",
            EAGLE,
            Group("window", 2, window=3, eagle=True),
            jobs=ASYNC,
            num_blocks=16,
            drafts=1,
        )
    ),
    _overlapping(
        _one(
            "hybrid-async-drafts",
            *(EAGLE, MAMBA),
            jobs=(Job("r0", "abc", 4),),
            num_blocks=16,
            drafts=1,
        )
    ),
    _one(
        "store-failing",
        FULL,
        jobs=TWICE,
        num_blocks=6,
        store=True,
        resets=True,
        failures=1,
    ),
    _one(
        "store-recomputing",
        FULL,
        jobs=(*TWICE, Job("r2", "abcx")),
        num_blocks=6,
        store=True,
        resets=True,
        aborts=True,
        failures=1,
        load_failure="recompute",
    ),
    _overlapping(
        _one(
            "store-failing-async",
            FULL,
            jobs=(Job("r0", "abcd"), Job("r1", "abcde", 3)),
            store=True,
            prefix_caching=False,
            failures=1,
            load_failure="recompute",
        )
    ),
    _one(
        "store-drafts",
        EAGLE,
        jobs=(Job("r0", "abcd", 3), Job("r1", "abcde")),
        num_blocks=7,
        store=True,
        resets=True,
        drafts=1,
        failures=1,
        load_failure="recompute",
    ),
    _overlapping(_one("store-async", FULL, jobs=APART, num_blocks=5, store=True, aborts=True)),
    _pd(
        "pd-drafts",
        FULL,
        MAMBA,
        jobs=(Job("r0", "abcde", 3), Job("r1", "abcx", 2)),
        num_blocks=12,
        drafts=1,
    ),
    _pd("pd-drafts-tight", EAGLE, jobs=(Job("r0", "abcd"),), decode_blocks=4, drafts=1),
    _overlapping(_pd("pd-drafts-async", EAGLE, jobs=ASYNC, num_blocks=8, drafts=1), "D"),
    _overlapping(_pd("pd-async", FULL, MAMBA, jobs=APART, num_blocks=7, aborts=True)),
    _overlapping(
        _pd(
            "pd-async-decode",
            FULL,
            WINDOW,
            jobs=APART,
            decode_blocks=6,
            failures=1,
            load_failure="recompute",
        ),
        "D",
    ),
    _pd("push", FULL, MAMBA, jobs=TWICE, transfer="push"),
    _pd("push-full", FULL, jobs=(Job("r0", "abcd", 2), Job("r1", "abcdx")), transfer="push"),
    _pd(
        "push-failing",
        *(FULL, WINDOW),
        jobs=(Job("r0", "abcde"),),
        aborts=True,
        failures=1,
        load_failure="recompute",
        transfer="push",
    ),
    _pd(
        "push-leases",
        FULL,
        jobs=(Job("r0", "abc", 2),),
        aborts=True,
        losses=True,
        failures=1,
        transfer="push",
    ),
    _pd(
        "push-overdue",
        FULL,
        jobs=(Job("r0", "abc"), Job("r1", "wxyz")),
        losses=True,
        num_blocks=3,
        transfer="push",
    ),
    _overlapping(
        _pd(
            "push-async",
            FULL,
            jobs=(Job("r0", "abc", 3),),
            num_blocks=5,
            drafts=1,
            aborts=True,
            resets_any_time=True,
            stray=True,
            transfer="push",
        )
    ),
    _one(
        "sessions",
        FULL,
        jobs=(Job("r0", "abcd", 2, parts=("ef",)), Job("r1", "wxyz", 2, parts=("uv",))),
        num_blocks=7,
        sessions=True,
    ),
    _one(
        "sessions-hybrid",
        *(FULL, WINDOW, MAMBA),
        jobs=(Job("r0", "abcd", 2, parts=("ef",)), Job("r1", "abcx", 1, parts=("uv",))),
        num_blocks=14,
        sessions=True,
    ),
    _overlapping(
        _one(
            "sessions-async",
            FULL,
            jobs=(Job("r0", "abc", 3), Job("r1", "w", 2, parts=("x",))),
            num_blocks=4,
            sessions=True,
        )
    ),
    _one(
        "resetting",
        FULL,
        jobs=(Job("r0", "abcd", 2), Job("r1", "abxyz", 2)),
        num_blocks=6,
        resets_any_time=True,
    ),
    _pd("turns", FULL, jobs=TWO_TURNS, num_blocks=7, aborts=True, follow_up_turns=True),
    _pd("turns-shorter", FULL, jobs=ASKED_AGAIN, num_blocks=7, aborts=True, follow_up_turns=True),
    _pd("turns-window", FULL, WINDOW, jobs=TWO_TURNS, num_blocks=12, follow_up_turns=True),
    _pd("turns-hybrid", FULL, MAMBA, jobs=TWO_TURNS, num_blocks=12, follow_up_turns=True),
    _pd("turns-state", FULL, MAMBA, jobs=ASKED_AGAIN, num_blocks=12, follow_up_turns=True),
    _pd(
        "turns-recomputing",
        *(FULL, MAMBA),
        jobs=TWO_TURNS,
        num_blocks=12,
        failures=1,
        load_failure="recompute",
        follow_up_turns=True,
    ),
    _pd(
        "turns-drafts",
        FULL,
        jobs=(Job("r0", "a", 2), Job("r1", "a..bc", follows="r0")),
        num_blocks=7,
        drafts=2,
        follow_up_turns=True,
    ),
    _overlapping(
        _pd(
            "turns-async",
            FULL,
            jobs=(Job("r0", "a", 3), Job("r1", "a...bc", follows="r0")),
            num_blocks=7,
            drafts=1,
            losses=True,
            stray=True,
            follow_up_turns=True,
        )
    ),
    _ratios("pd-ratio", Job("r0", "abcdef"), Job("r1", "abcdxy"), prefill=2, decode=1),
    _ratios("pd-ratio-decode", Job("r0", "abcdef"), Job("r1", "abcdxy"), prefill=1, decode=2),
    _one("unequal", WIDER, WINDOW, jobs=RESENT_8, num_blocks=14),
    _matching(2, _one("partial", WIDER, WIDER_MAMBA, jobs=ENDS_INSIDE, num_blocks=20)),
    _one(
        "partial-unequal",
        *(FULL, WINDOW, WIDER_MAMBA),
        jobs=(Job("r0", "abcdefghijk"), Job("r1", "abcdefghxyz")),
        num_blocks=24,
        chunk_tokens=6,
    ),
    _matching(
        2,
        _one(
            "partial-tight",
            *(WIDER, WIDER_MAMBA),
            jobs=(Job("r0", "abcdefg", 2), Job("r1", "abcdefg")),
            num_blocks=5,
        ),
    ),
    _matching(
        1,
        _one(
            "partial-evicting",
            *(Group("full", 3), Group("mamba", 3)),
            jobs=(Job("r0", "ab"), Job("r1", "abcdefg"), Job("r2", "abcz")),
            num_blocks=9,
            evictions=True,
        ),
    ),
    _retaining(
        _overlapping(
            _matching(
                2,
                _one(
                    "partial-async",
                    *(WIDER, WIDER_MAMBA),
                    jobs=(Job("r0", "abcdefg", 3, priority=1), Job("r1", "abcdefg", 3)),
                    num_blocks=7,
                    chunk_tokens=6,
                    policy="priority",
                ),
            )
        ),
        0,
    ),
    _telling(_one("events", FULL, jobs=COPIED, num_blocks=5, resets=True)),
    _telling(_one("events-hybrid", FULL, MAMBA, jobs=TWICE, evictions=True)),
    _telling(
        _one("partial-events", FULL, WIDER_MAMBA, jobs=RESENT_7[::2], num_blocks=8, evictions=True)
    ),
    _telling(
        _overlapping(
            _pd(
                "pd-events",
                FULL,
                jobs=(Job("r0", "ab", 4), Job("r1", "ab")),
                num_blocks=4,
                decode_blocks=4,
                drafts=1,
            ),
            "D",
        )
    ),
    _retaining(_telling(_one("events-sparse", FULL, WIDE, jobs=RESENT, num_blocks=11)), 0),
    _retaining(_one("sparse-window", FULL, WINDOW, jobs=SIBLINGS, num_blocks=24), 0),
    _retaining(
        _one("sparse-drafts", EAGLE, WINDOW, MAMBA, jobs=RESENT_7, num_blocks=24, drafts=1), 0
    ),
    _retaining(
        _one(
            "sparse-window-drafts",
            EAGLE,
            Group("window", 2, window=3, eagle=True),
            jobs=RESENT_7,
            num_blocks=24,
            drafts=1,
        ),
        8,
    ),
    _retaining(_one("sparse-hybrid", FULL, MAMBA, jobs=SIBLINGS, num_blocks=24), 0),
    _retaining(
        _one("sparse-periodic", FULL, MAMBA, jobs=(Job("r0", "abcdefgh"), Job("r1", "abcdefxy"))), 4
    ),
    _retaining(_one("sparse-three", FULL, WIDE, MAMBA, jobs=RESENT, num_blocks=14), 0),
    _retaining(_pd("sparse-pd", FULL, WINDOW, MAMBA, jobs=TWICE, num_blocks=12), 0),
)

CLUSTERS: dict[str, Cluster] = {cluster.name: cluster for cluster in _PRESETS}


def cluster_named(name: str) -> Cluster:
    """A preset by name, random:SEED, or a cluster from a JSON file. Raises UsageError for none."""
    if name in CLUSTERS:
        return CLUSTERS[name]
    if name.startswith(random_clusters.PREFIX):
        return random_clusters.from_name(name)
    path = Path(name)
    if path.suffix != ".json":
        raise unknown("cluster", name, CLUSTERS)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The file {name} cannot be read ({error.strerror}). "
            f"Write the path of a JSON file, or one of {', '.join(sorted(CLUSTERS))}."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"The file {name} is not UTF-8 text. Write one JSON object that describes a cluster."
        ) from error
    return parse(text, name)
