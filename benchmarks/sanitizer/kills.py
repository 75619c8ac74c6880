"""Twenty kills of a running engine under `KVPROOF=record`: the sanitizer never brings it down.

    PYTHONPATH=. python benchmarks/sanitizer/kills.py [--times 20] [--seed 0]

Signals reach the process of an engine at random moments, in turn where the engine runs in the
process of `LLM` and where it has one of its own. The processes must end as without kvproof. And a
function of kvproof raises at a random call: all answers must be the same, the mistake is printed
and the verdict is UNKNOWN. Exit code: 0 all held, 1 one did not, 2 bad usage.
"""

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.engine.injuries import printed_once
from tests.engine.ordinary import BLOCKS, POOL
from tests.engine.process import OPTIONS, Answer, Process

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENGINE = ["engine", "full", OPTIONS | POOL | {"num_gpu_blocks_override": BLOCKS["full"]}]
WORK = ["call", "tests.engine.ordinary:work"]
INJURIES = "tests.engine.injuries"
LONG = [*WORK, 0, 600]
"""More requests than are served before the kill."""

LATEST_S = 4.0
"""The latest moment of a kill after the first request, in seconds."""

END_S = 60.0


class End(NamedTuple):
    """How the processes ended: the exit code of the one that started the engine, the kind of the
    exception that it got, if any, and the log."""

    code: int | None
    error: str
    log: str


def killed(models: Path, sent: signal.Signals, after_s: float, mode: str | None, own: bool) -> End:
    """An engine whose process gets a signal during its work. It is a process of its `own`, or that
    of `LLM`."""
    error = ""
    process = Process(models, mode=mode, several=own, limit_s=END_S)
    with process:
        built = process.take(ENGINE, ["call", "tests.engine.kills:pid"])
        assert built.error is None, built.error
        timer = threading.Timer(after_s, os.kill, (built.results[-1], sent))
        timer.start()
        try:
            answer = process.take(LONG)
            error = (answer.error or "none").partition(":")[0]
        except AssertionError as ended:
            error = str(ended).splitlines()[0]
        timer.join()
    return End(process.returncode, error, process.log)


def kvproof_lines(log: str) -> list[str]:
    """What the sanitizer printed."""
    return re.findall(r"kvproof: (.*)", log)


def signals(models: Path, times: int, chooses: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Kills by signals: what was done, and what does not hold."""
    unwatched: dict[tuple[signal.Signals, bool], End] = {}
    for number in range(times):
        sent, own = SIGNALS[number % 3], bool(number // 3 % 2)
        after_s = chooses.uniform(0.1, LATEST_S)
        if (sent, own) not in unwatched:
            unwatched[sent, own] = killed(models, sent, after_s, None, own)
        plain = unwatched[sent, own]
        end = killed(models, sent, after_s, "record", own)
        wrong = []
        if (end.code, end.error) != (plain.code, plain.error):
            wrong.append(f"ends with {end[:2]}, not {plain[:2]} as without kvproof")
        lines = kvproof_lines(end.log)
        wrong += [line for line in lines if "mistake" in line or "VIOLATED" in line]
        if sent is not signal.SIGKILL and (own or sent is signal.SIGINT):
            wrong += ["no summary"] * (not any("judged: " in line for line in lines))
        where = "engine's process" if own else "LLM's process"
        yield f"{sent.name} after {after_s:.1f} s in the {where}, exit code {end.code}", wrong


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
        if not wrong and answer.results != clean.results:
            wrong.append("other answers than without kvproof")
        if not printed_once(process.log, place):
            wrong.append("the mistake is not printed once, and UNKNOWN at the end")
        wrong += [line for line in kvproof_lines(process.log) if "VIOLATED" in line]
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
