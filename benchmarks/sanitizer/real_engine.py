"""What the sanitizer costs a real engine, as a ratio.

python benchmarks/sanitizer/real_engine.py [--device cpu] [--requests 8] [--rounds 40]

Two engines of the same random weights, in a process each, take turns of 10 decode steps: one runs
under KVPROOF=record. The smaller the model, the larger is the share of the sanitizer. Install
kvproof in the Python that runs this: vLLM finds it by its entry point.
"""

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.engine.conftest import DEVICES  # noqa: E402
from tests.engine.process import Process  # noqa: E402

STEPS = 10
PROMPT = 200

SIZES: dict[str, dict[str, Any]] = {
    "hidden size 128, 2 layers": {},
    "hidden size 1024, 4 layers": {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 32_000,
    },
}


def started(
    process: Process, device: str, size: dict[str, Any], requests: int, answer: int
) -> float:
    """Build an engine and let it read its prompts. Returns the seconds of the prompts."""
    options = DEVICES[device] | {
        "hf_overrides": size,
        "load_format": "dummy",
        "max_model_len": PROMPT + answer + 8,
        "max_num_seqs": requests,
    }
    process.served(["engine", "full", options])
    chooses = random.Random(0)
    actions: list[list[Any]] = []
    for number in range(requests):
        prompt = [chooses.randrange(3, 500) for _ in range(PROMPT)]
        actions.append(["add", f"r{number}", prompt, {"max_tokens": answer}])
    actions += [["until", f"r{number}", 2] for number in range(requests)]
    return process.served(*actions).seconds


def compared(device: str, size: str, requests: int, rounds: int) -> str:
    """A line with the times of both engines."""
    answer = (rounds + 2) * STEPS
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        with Process(models) as plain, Process(models, mode="record") as watched:
            sides = (plain, watched)
            read = [started(side, device, SIZES[size], requests, answer) for side in sides]
            times: list[list[float]] = [[], []]
            for _ in range(rounds):
                for side, seconds in zip(sides, times, strict=True):
                    seconds.append(side.served(["steps", STEPS]).seconds / STEPS)
    if watched.complaints or not watched.judged:
        raise SystemExit(watched.log)
    before, after = map(statistics.median, times)
    return (
        f"{size}, {requests} requests: decode step {before * 1e3:.2f} ms, watched "
        f"{after * 1e3:.2f} ms, ratio {after / before:.3f}; prompts of {PROMPT} tokens "
        f"{read[0]:.2f} s, watched {read[1]:.2f} s, ratio {read[1] / read[0]:.2f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    for size in SIZES:
        print(compared(args.device, size, args.requests, args.rounds), flush=True)


if __name__ == "__main__":
    main()
