"""What the sanitizer costs a scheduler that does nothing else, as a ratio.

python benchmarks/sanitizer/scheduler_loop.py [--quick | --memory]

Pairs of schedulers of the same config take turns in one process, step by step; of each pair one is
watched as `KVPROOF=record` does it, with its counts kept on disk. All prompts are different. A
decode step, in which each running request gets a token, is timed by itself; what reads a prompt is
its arrival and the steps until its first token. Times are the processor's, and blocks have 16
tokens.

The pools have 1,000, 10,000 and 100,000 blocks under one load, which fits the smallest. It is flat
if no ratio of a pool is more than `SPREAD_MAX` times that of another. The serving load needs the
largest pool. There it is measured also with steps that overlap, as vLLM runs by default.

With `--memory` it says instead what the sanitizer keeps in memory for each block of the largest
pool and for each running token: the serving load arrives and is aborted three times. Only what
kvproof has allocated is counted.
"""

import argparse
import gc
import random
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from kvproof.live import build  # before vLLM

# isort: split

from msgspec.structs import force_setattr
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

import kvproof.watch
from kvproof.model.config import EngineConfig, Group
from kvproof.watch.judge import Judge
from kvproof.watch.observer import Observer
from kvproof.watch.run import WatchedRun
from kvproof.watch.watching import Watching

BLOCK = 16
POOLS = (1_000, 10_000, 100_000)
OURS = [
    tracemalloc.Filter(inclusive=True, filename_pattern=f"{path}/*")
    for path in kvproof.watch.__path__
]
DECODE_MAX, PREFILL_MAX, SPREAD_MAX = 1.5, 3.0, 1.25


class Load(NamedTuple):
    """So many requests with prompts of so many tokens arrive at a time and get a token in each of
    `steps` steps. Then they are aborted. This is done `rounds` times."""

    requests: int
    tokens: int
    steps: int
    rounds: int

    @property
    def words(self) -> str:
        """The load in words."""
        return f"{self.requests} running requests of {self.tokens:,} tokens"


SMALL = Load(64, 160, 80, 4)
SERVING = Load(256, 2000, 100, 1)


class Driven:
    """A scheduler, and the processor's seconds of each of its decode steps and of all its
    prompts. With `overlapping` steps, a step is scheduled before the output of the last one."""

    def __init__(self, load: Load, blocks: int, *, overlapping: bool) -> None:
        ahead = 2 if overlapping else 1
        full = Group("full", BLOCK)
        cfg = EngineConfig("E", (full,), chunk_tokens=8192, steps_in_flight=ahead)
        force_setattr(cfg, "num_blocks", blocks)
        force_setattr(cfg, "max_requests", load.requests)
        self.scheduler = build.scheduler(cfg, "fail")
        self.ahead = ahead
        self.outputs: deque[tuple[Any, ModelRunnerOutput]] = deque()
        self.decode: list[float] = []
        self.prefill = 0.0

    def arrive(self, request: Request) -> None:
        """A request arrives."""
        begin = time.thread_time()
        self.scheduler.add_request(request)
        self.prefill += time.thread_time() - begin

    def waits(self) -> bool:
        """Whether a request has no token yet."""
        return any(not each.num_output_tokens for each in self.scheduler.requests.values())

    def step(self) -> float:
        """A step is scheduled, and the oldest that runs answers. Returns its seconds."""
        begin = time.thread_time()
        output = self.scheduler.schedule()
        spent = time.thread_time() - begin
        if output.num_scheduled_tokens:
            self.outputs.append((output, self._answer(output)))
        if len(self.outputs) >= self.ahead or not output.num_scheduled_tokens:
            begin = time.thread_time()
            self.scheduler.update_from_output(*self.outputs.popleft())
            spent += time.thread_time() - begin
        return spent

    def _answer(self, output: Any) -> ModelRunnerOutput:
        names = list(output.num_scheduled_tokens)
        requests = [self.scheduler.requests[name] for name in names]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[
                [7] if each.num_computed_tokens >= each.num_prompt_tokens else []
                for each in requests
            ],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[None] * len(names),
        )

    def stop(self) -> None:
        """All requests are aborted."""
        self.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
        while self.outputs:
            self.scheduler.update_from_output(*self.outputs.popleft())


class Pair:
    """Two schedulers, of which the second is watched."""

    def __init__(self, load: Load, blocks: int, run: WatchedRun, *, overlapping: bool) -> None:
        self.blocks = blocks
        self.both = tuple(Driven(load, blocks, overlapping=overlapping) for _ in range(2))
        self.watching = Watching("record", lambda _: None)
        self.watching.run = run
        self.watching.attach(self.both[1].scheduler)

    @property
    def decode(self) -> float:
        """The ratio of a decode step."""
        plain, watched = (statistics.mean(each.decode) for each in self.both)
        return watched / plain

    @property
    def prefill(self) -> float:
        """The ratio of the steps that read prompts."""
        plain, watched = (each.prefill for each in self.both)
        return watched / plain

    @property
    def words(self) -> str:
        """What was measured, in a line."""
        decode = [statistics.mean(each.decode) * 1e3 for each in self.both]
        prefill = [each.prefill * 1e3 for each in self.both]
        line = (
            f"{self.blocks:9,} blocks: "
            f"decode {self.decode:.2f} ({decode[0]:.2f} ms, watched {decode[1]:.2f} ms a step), "
            f"prefill {self.prefill:.2f} ({prefill[0]:.0f} ms, watched {prefill[1]:.0f} ms)"
        )
        [judge] = self.watching.judges
        off = judge.why_off or judge.by_hand
        return line + (f"; watched no more: {off}" if off else "")


def measure(
    load: Load, pools: tuple[int, ...], run: WatchedRun, *, overlapping: bool = False
) -> list[Pair]:
    """Pairs for pools of these sizes, under the same load."""
    pairs = [Pair(load, blocks, run, overlapping=overlapping) for blocks in pools]
    driven = [each for pair in pairs for each in pair.both]
    gc.collect()
    gc.freeze()  # as vLLM does before it serves
    for turn in range(load.rounds):
        for number in range(load.requests):
            for each in driven:
                each.arrive(_request(turn * load.requests + number, load.tokens))
        while waiting := [each for each in driven if each.waits()]:
            for each in waiting:
                each.prefill += each.step()
        for _ in range(load.steps):
            for each in driven:
                each.decode.append(each.step())
        for each in driven:
            each.stop()
    return pairs


def _request(number: int, tokens: int) -> Request:
    chooses = random.Random(number)
    return Request(
        request_id=f"r{number}",
        prompt_token_ids=[chooses.randrange(3, 500) for _ in range(tokens)],
        sampling_params=SamplingParams(max_tokens=1500, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


def report(run: WatchedRun, *, quick: bool) -> Iterator[str]:
    """The lines that are printed."""
    small = SMALL._replace(rounds=1) if quick else SMALL
    pairs = measure(small, POOLS, run)
    yield f"{small.words}:"
    yield from (pair.words for pair in pairs)
    for what in ("decode", "prefill"):
        ratios = [getattr(pair, what) for pair in pairs]
        spread = max(ratios) / min(ratios)
        flat = "flat" if spread <= SPREAD_MAX else "NOT FLAT"
        yield f"  {what}: {flat}, the ratios are within {spread:.2f} (limit {SPREAD_MAX})"
    for overlapping in (False, True):
        [pair] = measured = measure(SERVING, POOLS[-1:], run, overlapping=overlapping)
        pairs += measured
        yield f"{SERVING.words}{', steps overlap' if overlapping else ''}:"
        yield pair.words
        for what, limit in (("decode", DECODE_MAX), ("prefill", PREFILL_MAX)):
            met = "met" if getattr(pair, what) <= limit else "MISSED"
            yield f"  {what}: the aim of {limit} is {met}"
    yield f"{sum(pair.watching.counts.total() for pair in pairs)} findings"


def kept() -> int:
    """The bytes that the sanitizer has allocated and keeps."""
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces(OURS)
    return sum(each.size for each in found.statistics("filename"))


def memory() -> Iterator[str]:
    """What the sanitizer keeps while each of three serving loads runs, and after it."""
    driven = Driven(SERVING, POOLS[-1], overlapping=False)
    tracemalloc.start()
    begin = kept()
    judge = Judge(lambda *_: None)
    Observer(driven.scheduler, judge)
    attached = kept() - begin
    for turn in range(3):
        for number in range(SERVING.requests):
            driven.arrive(_request(turn * SERVING.requests + number, SERVING.tokens))
        while driven.waits():
            driven.step()
        tokens = sum(each.num_tokens for each in driven.scheduler.requests.values())
        running = kept() - begin - attached
        driven.stop()
        left = kept() - begin - attached
        yield (
            f"{attached / POOLS[-1]:.0f} bytes for each block, {running / tokens:.1f} bytes for "
            f"each of {tokens:,} running tokens; {left:,} bytes stay when all requests have ended"
        )
    assert not judge.why_off, judge.why_off


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    measured = parser.add_mutually_exclusive_group()
    measured.add_argument("--quick", action="store_true", help="one round of the small load")
    measured.add_argument("--memory", action="store_true", help="what is kept in memory")
    args = parser.parse_args()
    run = WatchedRun()
    try:
        for line in memory() if args.memory else report(run, quick=args.quick):
            print(line, flush=True)
    finally:
        run.mark_reported()  # which removes its folder


if __name__ == "__main__":
    main()
