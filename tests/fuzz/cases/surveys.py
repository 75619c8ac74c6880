"""Surveys of releases in a cache folder: kvproof wrote them, and anybody may have changed them."""

from functools import cache
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.case import REFUSED, UNKNOWN, Case, Maker, folder
from tests.fuzz.material import drawn, traces
from tests.fuzz.mutations import as_json, bytes_changed, changed

RELEASE = "0.32.0"


@cache
def fingerprint() -> str:
    """The fingerprint in the names of surveys."""
    from kvproof.cli import release_surveys

    return release_surveys.fingerprint()


def cache() -> dict[str, bytes | Maker]:
    """A cache folder that has all but the survey."""
    return {
        f"cache/surveys/witnesses-{fingerprint()}": folder,
        f"cache/vllm/{RELEASE}/site-packages/vllm/__init__.py": b"",
        "cache/vllm/needed/site-packages/gguf.py": b"",
    }


def records() -> list[Any]:
    """A survey as kvproof writes it."""
    earlier = {"invariant": "hash_map_is_sound", "by": ""}
    broken = {"invariant": "pool_adds_up", "reasons": ["a", "b"], "runs": 1, "after": [earlier]}
    broken |= {"event": "Schedule", "feature": "full", "by": "", "death": ""}
    broken |= {"own": True, "stray": False, "events": 3, "trace": "x.jsonl"}
    ran: dict[str, Any] = {"runs": 1, "steps": 20, "died": 0, "death": "", "skipped": 0}
    ran["broken"] = []
    shown = {"invariant": "pool_adds_up", "shown": True, "fault": "double_free"}
    shown |= {"events": 9, "departed": ""}
    return [
        {"vllm": RELEASE},
        {"kind": "followed", "name": "a", "cluster": "pd-full", **ran, "broken": [broken], **shown},
        {"kind": "sampled", "name": "full", "cluster": "full", **ran, "without": ["failed loads"]},
        {"kind": "sampled", "name": "state", "cluster": "state", "reason": "no", "without": []},
        {"end": True},
    ]


@st.composite
def changed_survey(draw: st.DrawFn) -> tuple[list[Any], str]:
    """A survey with a changed value, and why it is no survey any more."""
    made, done = changed(draw, records())
    wrong = done.other_type and done.path[-1] not in ("reason", "death")
    return made, f"{done.path} is {str(done.new)[:60]!r}" if wrong else ""


def case(random: Random, key: str, number: int) -> Case:
    """A heat map of one release, whose survey is in the cache."""
    way = random.choice(("changed", "changed", "bytes", "good", "trace"))
    survey, why = records(), ""
    if way == "changed":
        survey, why = drawn(changed_survey(), key, number)
    data = b"".join(as_json(record) + b"\n" for record in survey)
    if way == "bytes":
        data = bytes_changed(random, data)
    files = {**cache(), f"cache/surveys/{RELEASE}-{fingerprint()}-0-1.jsonl": data}
    argv = ["releases", "--releases", RELEASE, "--cache", "cache", "--episodes", "1"]
    if way == "trace":
        trace = random.choice(traces())
        files["t.jsonl"] = trace if random.randrange(2) else bytes_changed(random, trace)
        argv += ["--trace", "t.jsonl"]
    if random.randrange(2):
        argv.append("--json")
    return Case(
        tuple(argv),
        files=files,
        outputs=("cache/surveys",),
        replaces=("cache/surveys",),
        invalid=why,
        refusals=(REFUSED, UNKNOWN),
    )
