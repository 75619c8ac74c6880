"""Twenty kills of a running engine under `KVPROOF=record`: the sanitizer never brings it down.

    PYTHONPATH=. python benchmarks/sanitizer/kills.py [--times 20] [--seed 0]

Signals reach the process of an engine at random moments, most of them while it writes a record. It
must end as it does without, and each file of a record must be whole. And a function of kvproof
raises at a random call: all answers must be the same, the mistake is printed, and the verdict is
UNKNOWN. Exit code: 0 all held, 1 one did not, 2 bad usage.
"""

import argparse
import random
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvproof.model.errors import UsageError
from kvproof.model.records.record import read
from tests.engine.injuries import printed_once
from tests.engine.ordinary import BLOCKS, POOL
from tests.engine.process import OPTIONS, Answer, Process

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENGINE = ["engine", "full", OPTIONS | POOL | {"num_gpu_blocks_override": BLOCKS["full"]}]
WORK = ["call", "tests.engine.ordinary:work"]
INJURIES = "tests.engine.injuries"
KILLS = "tests.engine.kills"
LATEST_S = 4.0
"""The latest moment of a kill after the first request, in seconds."""

END_S = 300.0


def in_fork(process: Process, sent: signal.Signals, after_s: float) -> Answer:
    """A kill of a process with an engine, as it is when `LLM` has no other process."""
    options = [str(process.models), ENGINE[-1], int(sent), after_s]
    return process.take(["call", f"{KILLS}:in_fork", *options])


def in_engine_core(process: Process, sent: signal.Signals, after_s: float) -> Answer:
    """A kill of the engine core of vLLM."""
    return process.take(ENGINE, ["call", f"{KILLS}:in_engine_core", int(sent), after_s])


def signals(models: Path, times: int, chooses: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Kills by signals, the last of each in the engine core of vLLM: what was done, and what does
    not hold."""
    cores = len(SIGNALS)
    for kill, count, own in ((in_fork, times - cores, False), (in_engine_core, cores, True)):
        with Process(models, several=own, limit_s=END_S) as plain:
            expected = {sent: kill(plain, sent, 1.0).results[-1] for sent in SIGNALS}
        records = models / f"records-{kill.__name__}"
        environment = {"KVPROOF_DIR": str(records)}
        with Process(
            models, mode="record", several=own, environment=environment, limit_s=END_S
        ) as watched:
            for number in range(count):
                sent, after_s = SIGNALS[number % len(SIGNALS)], chooses.uniform(0.05, LATEST_S)
                answer = kill(watched, sent, after_s)
                wrong = [answer.error] if answer.error is not None else []
                if not wrong and answer.results[-1] != expected[sent]:
                    wrong.append(f"exit code {answer.results[-1]}, without it {expected[sent]}")
                yield f"{kill.__name__}: {sent.name} after {after_s:.2f} s", wrong
        lines = re.findall(r"kvproof: (.*)", watched.log)
        wrong = [line for line in lines if "mistake" in line or "VIOLATED" in line]
        summaries = sum("judged: " in line for line in lines)
        orderly = sum(SIGNALS[n % len(SIGNALS)] is not signal.SIGKILL for n in range(count))
        if summaries != 1:
            wrong.append(f"{summaries} summaries of the parent")
        reported = sum(" was killed, or died; " in line for line in lines)
        if reported < count - orderly:
            wrong.append(f"{reported} of {count - orderly} killed processes are reported")
        yield f"{kill.__name__}: the log of these {count}", wrong
        if not own:
            files = sorted(records.iterdir())
            wrong = [why for path in files if (why := not_whole(path))]
            wrong += [] if len(files) >= count else [f"only {len(files)} files of records"]
            yield f"{kill.__name__}: {len(files)} files of records", wrong


def not_whole(path: Path) -> str:
    """Why a file is not a whole record, empty if it is."""
    try:
        read(path)
    except UsageError as error:
        return str(error)
    return ""


def injuries(models: Path, times: int, chooses: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Mistakes of kvproof: what was done, and what does not hold. The engines of one process are
    injured one after the other."""
    with Process(models, limit_s=END_S) as unwatched:
        clean = unwatched.take(ENGINE, WORK)
    assert clean.error is None, clean.error
    answers: dict[str, tuple[int, Answer]] = {}
    with Process(models, mode="record", limit_s=END_S) as process:
        counted = ["call", f"{INJURIES}:counted"]
        calls = process.take(["call", f"{INJURIES}:count"], ENGINE, WORK, counted).results[-1]
        for place in chooses.sample(sorted(calls), times):
            call = chooses.randint(1, min(calls[place], 200))
            injury = ["call", f"{INJURIES}:injure", place, call]
            answers[place] = call, process.take(injury, ENGINE, WORK)
    for place, (call, answer) in answers.items():
        wrong = [answer.error] if answer.error is not None else []
        if not wrong and answer.results[-1] != clean.results[-1]:
            wrong.append("other answers than without kvproof")
        if not printed_once(process.log, place):
            wrong.append("the mistake is not printed once, and UNKNOWN at the end")
        wrong += re.findall(r"kvproof: (.*VIOLATED.*)", process.log)
        wrong += [f"exit code {process.returncode}"] if process.returncode else []
        yield f"{place.partition(':')[2]} raises at call {call}", wrong


def main() -> int:
    """Kill, check, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chooses = random.Random(args.seed)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        raised = args.times * 2 // 5
        kinds = signals(models, args.times - raised, chooses), injuries(models, raised, chooses)
        for kind in kinds:
            for what, wrong in kind:
                failed += bool(wrong)
                print(f"{what}: {'; '.join(wrong) or 'ok'}", flush=True)
    print(f"{args.times} kills, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
