"""What the sanitizer costs a scheduler that does nothing else, as a ratio.

python benchmarks/sanitizer/scheduler_loop.py [--requests 256] [--tokens 2000] [--steps 100]

Two schedulers of the same config take turns in one process, step by step: one is watched. A decode
step of `--requests` running requests of `--tokens` tokens, in blocks of 16, is timed.
"""

import argparse
import random
import statistics
import time
from typing import Any

from kvproof.live import build  # before vLLM

# isort: split

from msgspec.structs import force_setattr
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from kvproof.live.watch.judge import Judge
from kvproof.live.watch.observer import Observer
from kvproof.model.config import Engine, Group
from kvproof.model.finding import Finding

BLOCK = 16


def scheduler(requests: int, blocks: int) -> Any:
    """A scheduler of one full-attention group."""
    cfg = Engine("E", (Group("full", BLOCK),), chunk_tokens=8192, max_requests=requests)
    force_setattr(cfg, "num_blocks", blocks)
    return build.scheduler(cfg, "fail")


def request(number: int, tokens: int) -> Request:
    """A request with a prompt of its own."""
    chooses = random.Random(number)
    return Request(
        request_id=f"r{number}",
        prompt_token_ids=[chooses.randrange(3, 500) for _ in range(tokens)],
        sampling_params=SamplingParams(max_tokens=1500, ignore_eos=True),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


def step(engine: Any) -> float:
    """One step: it is scheduled, and each request gets a token. Returns its seconds."""
    begin = time.perf_counter()
    output = engine.schedule()
    spent = time.perf_counter() - begin
    names = list(output.num_scheduled_tokens)
    tokens = [
        [7] if engine.requests[name].num_computed_tokens >= engine.requests[name].num_tokens else []
        for name in names
    ]
    made = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=tokens,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[None] * len(names),
    )
    begin = time.perf_counter()
    engine.update_from_output(output, made)
    return spent + time.perf_counter() - begin


def compared(requests: int, tokens: int, steps: int, blocks: int) -> str:
    """A line with the seconds of both schedulers, for a pool of this size."""
    found: list[Finding] = []
    judge = Judge(lambda finding, _: found.append(finding))
    engines = [scheduler(requests, blocks) for _ in range(2)]
    Observer(engines[1], judge)
    prefill = [0.0, 0.0]
    for index, engine in enumerate(engines):
        for number in range(requests):
            engine.add_request(request(number, tokens))
        while any(r.num_output_tokens == 0 for r in engine.requests.values()):
            prefill[index] += step(engine)
    times: list[list[float]] = [[], []]
    for _ in range(steps):
        for index, engine in enumerate(engines):
            times[index].append(step(engine))
    plain, watched = map(statistics.mean, times)
    return (
        f"{blocks:7,} blocks: decode step {plain * 1e3:.2f} ms, watched {watched * 1e3:.2f} ms, "
        f"ratio {watched / plain:.2f}; prefill {prefill[0]:.2f} s, watched {prefill[1]:.2f} s, "
        f"ratio {prefill[1] / prefill[0]:.2f}; {len(found)} findings {judge.why_off}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--blocks", type=int, nargs="+", default=[40_000, 100_000])
    args = parser.parse_args()
    for blocks in args.blocks:
        print(compared(args.requests, args.tokens, args.steps, blocks), flush=True)


if __name__ == "__main__":
    main()
