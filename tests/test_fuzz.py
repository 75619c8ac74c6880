"""The fuzzer: a small run holds, its cases can be repeated, and it sees what goes wrong.

`python -m tests.fuzz --cases 2000` is the run in full. It has processes of its own, because a
process that is forked must have no threads.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jsonschema")
from tests.fuzz.planted import WRONG
from tests.fuzz.valid import cluster_file, trace_file

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")

ROOT = Path(__file__).parent.parent

SMALL_CASES = 32

PLANTED = """
import json
from tests.fuzz import run_case
from tests.fuzz.case import Case
from tests.fuzz.judge import problems
from tests.fuzz.planted import WRONG

run_case.load()
good = Case((), {"mine": b"mine"}, ("out", "out.jsonl", "out.xml"), invalid="it is planted")
good = good.more(program="tests.fuzz.planted")
said = {}
for name in WRONG:
    case = good.more(argv=(name, "--json"))
    run_case.HANG_S = 1.0 if name == "hangs" else 600.0
    said[name] = problems(case, run_case.run(case))
print(json.dumps(said))
"""


def started(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the fuzzer."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


def test_a_small_run_holds() -> None:
    ran = started("-m", "tests.fuzz", "--cases", str(SMALL_CASES))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{SMALL_CASES} cases, 0 failing" in ran.stdout


@pytest.mark.slow
def test_a_case_is_the_same_again() -> None:
    first, again = (started("-m", "tests.fuzz", "--case", "77") for _ in range(2))
    assert first.returncode == again.returncode == 0, first.stdout
    lines = [
        [line for line in ran.stdout.splitlines() if line.startswith(("argv", "exit", "invalid"))]
        for ran in (first, again)
    ]
    assert len(lines[0]) == 3
    assert lines[0] == lines[1]


@pytest.fixture(scope="module")
def planted() -> dict[str, list[str]]:
    """What the judge says about each run of the planted program."""
    ran = started("-c", PLANTED)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, list[str]] = json.loads(ran.stdout)
    return said


@pytest.mark.parametrize("name", WRONG)
def test_what_goes_wrong_is_seen(name: str, planted: dict[str, list[str]]) -> None:
    assert any(WRONG[name][0] in problem for problem in planted[name]), planted[name]


ENGINE = b'{"name": "E", "groups": [{"kind": "full", "block_size": 2}]}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b'{"engines": [%s]}' % ENGINE, ""),
        (b'{"engines": [%s, %s]}' % (ENGINE, ENGINE), "one name"),
        (b'{"engines": [%s], "failures": NaN}' % ENGINE, "no NaN"),
        (b'{"engines": [%s], "name": "\\ud800"}' % ENGINE, "surrogates"),
        (b'{"engines": [%s], "name": "a\\nb"}' % ENGINE, "not printable"),
        (b'{"engines": [%s], "name": "%s"}' % (ENGINE, b"n" * 65), "too long"),
        (b'{"engines": [%s], "other": 1}' % ENGINE, "other"),
        (b'{"engines": [%s], "aborts": "false"}' % ENGINE, "aborts"),
        (b'{"engines": [%s], "failures": -1}' % ENGINE, "failures"),
        (b"[" * 100_000, "nested"),
        (b"\xff", "utf-8"),
    ],
)
def test_the_judge_knows_clusters(text: bytes, says: str) -> None:
    assert says in cluster_file(text)
    assert bool(says) == bool(cluster_file(text))


def test_the_judge_knows_traces() -> None:
    good = (ROOT / "findings" / "impossible_fit_waits" / "trace.jsonl").read_bytes()
    assert trace_file(good) == ""
    assert "cut off" in trace_file(good[:-1])
    assert "no end" in trace_file(good[: good[:-1].rindex(b"\n") + 1])
    assert trace_file(good.replace(b'"seed": 0', b'"seed": "0"', 1))
    assert trace_file(good.replace(b'"engine":', b'"engin":', 1))
