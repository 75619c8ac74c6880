"""What the sanitizer keeps in memory, for each block of the pool and for each running token.

python benchmarks/sanitizer/memory.py

It watches a scheduler of 100,000 blocks of 16 tokens. 256 requests of 2,000 tokens run and are
aborted, three times. Only what kvproof has allocated is counted.
"""

import gc
import tracemalloc

import scheduler_loop as loop  # before vLLM

# isort: split

import kvproof.watch
from kvproof.watch.judge import Judge
from kvproof.watch.observer import Observer

BLOCKS = loop.POOLS[-1]
OURS = [
    tracemalloc.Filter(inclusive=True, filename_pattern=f"{path}/*")
    for path in kvproof.watch.__path__
]


def kept() -> int:
    """The bytes that the sanitizer has allocated and keeps."""
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces(OURS)
    return sum(each.size for each in found.statistics("filename"))


def main() -> None:
    """Measure and print."""
    driven = loop.Driven(loop.SERVING, BLOCKS, overlapping=False)
    tracemalloc.start()
    begin = kept()
    judge = Judge(lambda *_: None)
    Observer(driven.scheduler, judge)
    attached = kept() - begin
    for turn in range(3):
        for number in range(loop.SERVING.requests):
            driven.arrive(loop._request(turn * 256 + number, loop.SERVING.tokens))
        while driven.waits():
            driven.step()
        tokens = sum(each.num_tokens for each in driven.scheduler.requests.values())
        running = kept() - begin - attached
        driven.stop()
        left = kept() - begin - attached
        print(
            f"{attached / BLOCKS:.0f} bytes for each block, {running / tokens:.1f} bytes for each "
            f"of {tokens:,} running tokens; {left:,} bytes stay when all requests have ended"
        )
    assert not judge.why_off, judge.why_off


if __name__ == "__main__":
    main()
