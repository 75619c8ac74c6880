"""The sanitizer says why a prefix cache does not hit: on an engine with a wide unit, on one that
evicts, and on one that loses hits by a planted mistake."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import Admit, Complete, ResetPrefixCache, Schedule, Submit
from kvproof.model.ghost import common_prefix
from kvproof.model.presets import CLUSTERS
from kvproof.model.step import Step
from kvproof.reports.record import show
from kvproof.reports.shared_tokens import rows_of_record
from kvproof.watch.summary import Summary
from tests.in_vllm import MANAGER, around
from tests.printed import printed
from tests.recorded import Recorded, with_jobs
from tests.watching import Observed, serve

pytestmark = pytest.mark.live

SYSTEM = "abcdefghijklmnopqrstuvwxyz" * 2
"""A shared prompt."""


def engine(*groups: Group, **options: Any) -> EngineConfig:
    return EngineConfig("E", groups, **{"num_blocks": 64, "chunk_tokens": 64, **options})


def served(cfg: EngineConfig, prompts: list[str]) -> tuple[Counter[str], Observed]:
    """What became of the shared tokens of prompts that are served one after the other, each to its
    end. Raises AssertionError where the rows do not have each shared token once."""
    jobs = tuple(Job(f"r{n}", prompt, 2) for n, prompt in enumerate(prompts))
    observed = Observed(Cluster("shared", (cfg,), jobs))
    for job in jobs:
        serve(observed.machine, job.name)
    judge = observed.judges["E"]
    assert not judge.why_off
    shared = [
        max(common_prefix(each, later) for each in prompts[:number])
        for number, later in enumerate(prompts)
        if number
    ]
    assert judge.shared.total() == sum(shared)
    assert min(judge.shared.values(), default=0) >= 0
    return judge.shared, observed


def unexplained(shared: Counter[str]) -> int:
    return sum(times for label, times in shared.items() if "nothing explains" in label)


def with_questions(count: int, tokens: int) -> list[str]:
    return [SYSTEM[:tokens] + chr(ord("A") + number) * 4 for number in range(count)]


def test_the_group_that_took_a_block_is_named() -> None:
    """Both groups take blocks that were cached."""
    groups = Group("full", 4), Group("window", 4, window=4)
    found = set[str]()
    for tokens in (8, 12, 16, 20):
        shared, _ = served(engine(*groups, num_blocks=13), [SYSTEM[:12], "A" * tokens] * 2)
        found.update(label for label in shared if "by whom" in label)
    assert {label.partition("by whom: ")[2] for label in found} == {
        "group 0, full, blocks of 4 tokens)",
        "group 1, window, blocks of 4 tokens)",
    }


def test_evicted_prompts_are_known_when_their_requests_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvproof.watch.shared_tokens.REQUESTS_MAX", 1)
    evicting = engine(Group("full", 4), num_blocks=9)
    shared, _ = served(evicting, [SYSTEM[:12], "A" * 24, SYSTEM[:12] + "B"])
    assert shared == {
        "not in group 0, as they were evicted (by whom: group 0, full, blocks of 4 tokens)": 8,
        "were hit": 4,
    }


def test_a_record_has_the_rows_of_its_admissions() -> None:
    shared, observed = served(engine(Group("full", 4), num_blocks=9), [SYSTEM[:12]] * 3)
    from kvproof.watch.record import record_of

    record = record_of(observed.observers["E"].notes, "request", "")
    found: Counter[str] = Counter()
    for row in rows_of_record(record):
        found[row.label] += row.tokens
    assert found == shared
    text = " ".join(printed(show, record).split())
    assert "Prefix cache: of 24 prompt tokens that earlier requests share, 16 were hit; 8" in text


def test_what_was_computed_before_a_reset_is_not_hit() -> None:
    jobs = tuple(Job(f"r{n}", SYSTEM[:12], 1) for n in range(2))
    observed = Observed(Cluster("reset", (engine(Group("full", 4)),), jobs, resets=True))
    run = Submit("E", "r0"), Schedule("E"), Complete("E")
    observed.take(*run, ResetPrefixCache("E"), Submit("E", "r1"), Schedule("E"))
    assert observed.judges["E"].shared == {"not, as the cache was reset since": 12}


def shared_and_hit(steps: Iterable[Step]) -> tuple[int, int]:
    """The tokens that each first admission shares with earlier ones, and those that it hits, found
    out without kvproof's own answer."""
    earlier: dict[tuple[str, str], str] = {}
    shared = hit = 0
    for step in steps:
        event = step.event
        for chosen in (event.chose or ()) if isinstance(event, Schedule) else ():
            assert isinstance(event, Schedule)
            if isinstance(chosen, Admit) and (event.engine, chosen.request) not in earlier:
                tokens = step.before.engine(event.engine).request(chosen.request).tokens
                own = [each for (engine, _), each in earlier.items() if engine == event.engine]
                shared += max((common_prefix(each, tokens) for each in own), default=0)
                hit += chosen.local_hit
                earlier[event.engine, chosen.request] = tokens
        for engine in step.before.engines:
            for request in engine.requests:
                ended = step.after.engine(engine.name).find(request.id) is None
                if ended and (engine.name, request.id) in earlier:
                    earlier[engine.name, request.id] = request.tokens[: request.computed]
        for engine in step.after.engines:
            for request in engine.requests:
                if (engine.name, request.id) in earlier:
                    earlier[engine.name, request.id] = request.tokens
    return shared, hit


@pytest.mark.parametrize("name", ["full-evicting", "hybrid-evicting", "window", "async", "store"])
def test_each_shared_token_of_a_random_run_is_in_one_row(name: str) -> None:
    in_all = 0
    for seed in range(4):
        rng = random.Random(seed)
        run = Recorded(with_jobs(CLUSTERS[name], rng))
        run.at_random(rng, 60)
        judge = run.judges["E"]
        shared, hit = shared_and_hit(run.steps)
        assert not judge.why_off
        assert (judge.shared.total(), judge.shared["were hit"]) == (shared, hit)
        assert not unexplained(judge.shared)
        in_all += shared
    assert in_all


def finds_every_other_time(right: Any, self: Any, request: Any) -> Any:
    """A look-up that finds nothing for each second request."""
    if int(request.request_id[1:]) % 2:
        return self.empty_kv_cache_blocks, 0, *right(self, request)[2:]
    return right(self, request)


def test_a_planted_loss_of_hits_is_what_nothing_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    full, prompts = engine(Group("full", 4)), with_questions(5, 22)
    whole, _ = served(full, prompts)
    assert not unexplained(whole)
    around(f"{MANAGER}.get_computed_blocks", finds_every_other_time)(monkeypatch)
    lost, observed = served(full, prompts)
    assert unexplained(lost) == whole["were hit"] - lost["were hit"] == 40
    assert set(observed.found) == {"hit_is_the_longest", "repeated_prompt_hits"}
    found = Summary()
    found.watched.update(engines=1, steps=1)
    found.times_judged.update(observed.judges["E"].times_judged)
    found.shared.update(lost)
    [told] = [line for line in found.lines() if line.startswith("of ")]
    assert told.startswith(
        "of 88 prompt tokens that earlier requests share, 40 not, and nothing explains it; 40 were"
    )
