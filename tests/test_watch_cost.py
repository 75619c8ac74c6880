"""What a watcher keeps is bounded by the pool, and each block is judged though no event touches
it."""

import gc
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from msgspec.structs import replace

from kvproof.model.config import Job
from kvproof.model.events import Abort, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.watch.observer import SLICE_BLOCKS, Rounds
from kvproof.watch.parts.admissions import SERVED_MAX
from kvproof.watch.slices import WatchedRequest
from kvproof.watch.tokens import Tokens, tokens_of
from tests.in_vllm import POOL, around
from tests.watching import Observed, serve, step

pytestmark = pytest.mark.live


class Watched(Observed):
    """A live machine of one engine under an observer, with random jobs."""

    def __init__(self, preset: str, jobs: int) -> None:
        prompts = random.Random(0)
        self.jobs = [
            Job(f"r{number}", "".join(prompts.choices("abcdefgh", k=7)), 2)
            for number in range(jobs)
        ]
        super().__init__(replace(CLUSTERS[preset], aborts=True).carrying(*self.jobs))
        [(self.name, node)] = self.machine.nodes.items()
        self.scheduler = node.scheduler
        self.judge, self.observer = self.judges[self.name], self.observers[self.name]

    @property
    def pool(self) -> Any:
        return self.scheduler.kv_cache_manager.block_pool

    def run(self, job: Job) -> None:
        """A request from its arrival to its end."""
        serve(self.machine, job.name, self.name)

    def end(self) -> None:
        assert not self.judge.why_off, self.judge.why_off
        assert not self.judge.by_hand, self.judge.by_hand


def alive() -> list[Any]:
    """The requests and the tokens that any watcher of this process keeps."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) in (WatchedRequest, Tokens)]


def kept(watched: Watched, others: list[Any]) -> dict[str, int]:
    """How much the watcher keeps, without what others keep."""
    not_ours = {id(each) for each in others}
    kinds = Counter(type(each).__name__ for each in alive() if id(each) not in not_ours)
    contents, slices = watched.observer.contents, watched.observer.slices
    return {
        "requests": kinds["WatchedRequest"],
        "tokens": kinds["Tokens"],
        "slots": len(contents.slots),
        "later": len(contents.later),
        "holders": sum(1 for _ in slices.holders),
        "keys": sum(len(slices.mapped.of(block)) for block in slices.mapped),
    }


@pytest.mark.parametrize("preset", ["full", "hybrid-evicting"])
def test_what_is_kept_is_bounded_by_the_pool(preset: str) -> None:
    others = alive()
    watched = Watched(preset, 50)
    before = kept(watched, others)
    for number, job in enumerate(watched.jobs):
        if number % 5:
            watched.run(job)
        else:
            watched.machine.take(Submit(watched.name, job.name))
            step(watched.machine, watched.name)
            watched.machine.take(Abort(watched.name, job.name))
    after = kept(watched, others)
    assert after["requests"] == after["holders"] == after["later"] == 0
    assert after["tokens"] <= SERVED_MAX
    assert after["slots"] == before["slots"]
    assert 0 < after["keys"] <= len(watched.pool.blocks)
    assert watched.judge.times_judged["all_blocks_return"] >= 40
    assert not watched.found
    watched.end()


def test_what_no_event_touches_is_judged_too() -> None:
    watched = Watched("full", 2)
    watched.run(watched.jobs[0])
    assert not watched.found
    last = watched.pool.free_block_queue.fake_free_list_tail.prev_free_block
    last.reset_hash()
    watched.machine.take(Submit(watched.name, watched.jobs[1].name))
    watched.machine.take(Schedule(watched.name))
    assert set(watched.found) == {"hash_map_is_sound"}
    watched.end()


def test_an_idle_engine_has_all_blocks_back(monkeypatch: pytest.MonkeyPatch) -> None:
    around(f"{POOL}.free_blocks", lambda right, pool, blocks: right(pool, list(blocks)[1:]))(
        monkeypatch
    )
    watched = Watched("full", 1)
    watched.run(watched.jobs[0])
    assert "all_blocks_return" in watched.found
    watched.end()


def tokens(ids: list[int], seed: object = None) -> Any:
    return Tokens(seed, ids)


def test_equal_prefixes_and_no_others_have_equal_hashes() -> None:
    draws = random.Random(0)
    prompt = [draws.randrange(4) for _ in range(300)]
    whole, slow = tokens(prompt), tokens([])
    for token in prompt:
        slow.extend([token])
    assert whole.hashes == slow.hashes
    assert len(set(whole.hashes)) == 300
    assert whole.text(16, 40) == slow.text(0, 300)[16:40]
    for position in range(300):
        other = list(prompt)
        other[position] += 1
        changed = tokens(other)
        assert changed.hashes[:position] == whole.hashes[:position]
        assert not set(changed.hashes[position:]) & set(whole.hashes)
        assert changed.text(position, position + 2) != whole.text(position, position + 2)
    assert not set(tokens(prompt, "lora").hashes) & set(whole.hashes)
    assert tokens([1, 2]).hashes[1] != tokens([2, 1]).hashes[1]


def test_each_block_is_judged_in_turn() -> None:
    rounds = Rounds(100)
    seen = Counter(block for _ in range(100) for block in rounds.next(idle=False))
    assert seen == dict.fromkeys(range(100), SLICE_BLOCKS)
    assert sorted(rounds.next(idle=True)) == list(range(100))
    assert not rounds.next(idle=True)


def test_the_content_of_embeddings_counts() -> None:
    import torch

    def request(*rows: list[float], known: list[bool] | None = None) -> Any:
        return SimpleNamespace(
            all_token_ids=[0] * len(rows),
            prompt_embeds=torch.tensor(rows, dtype=torch.bfloat16),
            prompt_is_token_ids=known,
            lora_request=None,
            cache_salt=None,
        )

    one = tokens_of(request([1.0, 2.0], [3.0, 4.0]))
    assert one.hashes == tokens_of(request([1.0, 2.0], [3.0, 4.0])).hashes
    other = tokens_of(request([1.0, 2.0], [3.0, 5.0]))
    assert one.hashes[0] == other.hashes[0]
    assert one.hashes[1] != other.hashes[1]
    token = tokens_of(request([1.0, 2.0], [3.0, 5.0], known=[False, True]))
    assert token.hashes == tokens_of(request([1.0, 2.0], [9.0, 9.0], known=[False, True])).hashes
