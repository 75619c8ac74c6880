"""Clusters that cannot be, and those that are not modelled, are refused in two sentences. Features
that exclude each other in any case are in the table of docs/reference/features.md."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.errors import UsageError
from kvproof.model.presets import CLUSTERS
from tests.sentences import two_sentences

FULL, EAGLE = Group("full", 2), Group("full", 2, eagle=True)
NARROW, WIDE = (Group("window", size, window=3, eagle=True) for size in (2, 4))


def engine(*groups: Group, **options: Any) -> EngineConfig:
    return EngineConfig("E", groups or (FULL,), **{"num_blocks": 12} | options)


def cluster(*jobs: Job, of: EngineConfig | None = None, **options: Any) -> Cluster:
    return Cluster("c", (of or engine(),), jobs, **options)


def pair(prefill: dict[str, Any], decode: dict[str, Any], **options: Any) -> Cluster:
    """P and D with these options. A cluster that live vLLM has may not be modelled."""
    p, d = (
        EngineConfig(name, **{"groups": (FULL,), "num_blocks": 30} | more, role=role)
        for name, role, more in (("P", "prefill", prefill), ("D", "decode", decode))
    )
    made = Cluster("c", (p, d), **options)
    refuse_unmodelled(made)
    return made


def ratios(prefill: int, decode: int, *kinds: str) -> Cluster:
    """P and D with kernel blocks of one token, so many of them in a block."""
    both = [
        {
            "groups": tuple(Group(k, ratio, 3 if k == "window" else 0) for k in ("full", *kinds)),
            "physical_per_logical": ratio,
        }
        for ratio in (prefill, decode)
    ]
    return pair(*both, jobs=(Job("r0", "abcde", 2),))


def turns(**change: Any) -> None:
    refuse_unmodelled(replace(CLUSTERS["turns"], **change))


INSIDE = (
    "unequal physical_per_logical and windows, where P keeps fewer tokens than a block of D may "
    r"need\. Use a physical_per_logical of P that is a multiple of D's, or no window group"
)
FOLLOWS = Job("r1", "a", follows="r0")

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    # Numbers and texts of one option
    "steps": (lambda: engine(steps_in_flight=3), r"steps_in_flight of engine E is 3.*Use a whole"),
    "policy": (
        lambda: engine(policy="prio"),
        r"policy of engine E is 'prio'\. Use one of fcfs, priority",
    ),
    "requests": (lambda: engine(max_requests=0), "max_requests of engine E is 0"),
    # What a job asks for and its cluster does not have
    "sessions": (
        lambda: cluster(Job("r0", "a", parts=("b",))),
        r"has no sessions\. Use sessions true",
    ),
    "a session whose model ends an answer": (
        lambda: cluster(Job("r0", "a", parts=("b",), stops=1), sessions=True),
        r"stops of job r0 is 1\. Use 0",
    ),
    "priorities": (
        lambda: cluster(Job("r0", "ab", priority=1)),
        r"no serving by priority\. Use policy priority",
    ),
    "letters": (
        lambda: cluster(Job("r0", "a7", extra_key="salt"), extra_keys=True),
        r"Job r0 has the token '7'.*Use small letters",
    ),
    "wide letters": (
        lambda: cluster(Job("r0", "ａ"), extra_keys=True),
        r"Job r0 has the token 'ａ'",
    ),
    # Follow-up turns
    "no turns": (lambda: turns(follow_up_turns=False), "has no follow-up turns"),
    "turns of another prompt": (
        lambda: turns(jobs=(Job("r0", "ab"), Job("r1", "xb", follows="r0"))),
        "differs from that prompt",
    ),
    "turns of embeddings": (lambda: turns(jobs=(Job("r0", "ab", embeds=True),)), "embeds false"),
    "turns before their first": (
        lambda: turns(jobs=(FOLLOWS, Job("r0", "a"))),
        "no earlier job has this name",
    ),
    "two next turns": (
        lambda: turns(jobs=(Job("r0", "a"), FOLLOWS, Job("r2", "a", follows="r0"))),
        "another job follows it",
    ),
    # Groups of P and D, and of a drafter
    "another drafter": (
        lambda: pair({}, {"groups": (EAGLE,), "drafts": 1}),
        r"different cache groups on P.*Use eagle for the same",
    ),
    "narrow drafter": (
        lambda: engine(Group("full", 4), NARROW, retention=0, drafts=1),
        r"sparse retention and EAGLE.*Use one block_size",
    ),
    "narrow drafter beside a wide one": (
        lambda: engine(EAGLE, WIDE, retention=0, drafts=1),
        r"sparse retention and EAGLE.*Use one block_size",
    ),
    "wide drafter": (
        lambda: engine(Group("full", 4, eagle=True), NARROW, drafts=1),
        r"wider than others.* Use the smallest block_size",
    ),
    **{
        f"ratios {p}:{d}": (lambda p=p, d=d: ratios(p, d, "window"), INSIDE)
        for p, d in ((1, 2), (1, 4), (2, 3), (2, 4), (3, 2), (6, 4))
    },
    "ratios beside a state": (
        lambda: ratios(2, 1, "mamba"),
        r"Use prefix_caching false for D, or no Mamba group\.$",
    ),
    # Stores
    "failing store of groups": (
        lambda: cluster(of=engine(FULL, Group("window", 2, window=3), store=True), failures=1),
        "Use one full group, or failures 0",
    ),
    "failing store, drafts and steps": (
        lambda: cluster(of=engine(store=True, drafts=1, steps_in_flight=2), failures=1),
        "Use failures 0, store false, drafts 0, or steps_in_flight 1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    make, says = REFUSED[name]
    with pytest.raises(UsageError, match=says) as refusal:
        make()
    assert two_sentences(str(refusal.value))
    assert len(str(refusal.value)) < 300


def test_what_is_nearly_the_same_is_not() -> None:
    assert ratios(1, 2).disaggregated
    assert not CLUSTERS["pd-ratio-state"].decode.prefix_caching
    assert pair({}, {"drafts": 1}).decode.drafts == 1
