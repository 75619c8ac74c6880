"""Cluster files: made by a strategy, presets with changes, mutated bytes, and texts that are hard
for decoders of JSON."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.case import Case
from tests.fuzz.material import PRESETS, SMALL, drawn, preset
from tests.fuzz.mutations import ODD_TEXTS, Change, as_json, bytes_changed, changed
from tests.fuzz.valid import cluster_file

NOTES = ("about", "distinct_states")

OPTIONAL_TYPES = {"retention": ("int", "null")}
"""Fields that may have one of several types."""

FREE = ("about", "distinct_states", "name", "prompt", "follows")
"""Fields of a text or a number that means nothing else."""


@st.composite
def changed_preset(draw: st.DrawFn) -> tuple[bytes, str]:
    """A small preset with one to three changes, and why it is no cluster any more."""
    data: Any = preset(draw(st.sampled_from(SMALL)))
    data, done = changed(draw, data)
    if draw(st.booleans()):
        return as_json(data), _wrong(done)
    for _ in range(draw(st.sampled_from((1, 2)))):
        data, _ = changed(draw, data)
    return as_json(data), ""  # a later change may have mended the first


def _wrong(done: Change) -> str:
    """Why a change makes a good cluster a bad one, as far as the change alone says so."""
    field = next((key for key in reversed(done.path) if isinstance(key, str)), "")
    types = OPTIONAL_TYPES.get(field, ())
    if done.path[0] in NOTES or (len(done.path) == 1 and done.how == "renamed"):
        return ""
    if done.other_type and type(done.new).__name__.replace("NoneType", "null") not in types:
        return f"{done.path} is {str(done.new)[:60]!r}"
    if done.how == "added":
        return f"there is an unknown field beside {done.path}"
    if done.how == "renamed" and isinstance(done.path[-1], str):
        return f"{done.path} has another name"
    return ""


def _mostly(draw: st.DrawFn, usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> Any:
    return draw(rare if draw(st.integers(0, 11)) == 11 else usual)


@st.composite
def a_group(draw: st.DrawFn) -> dict[str, Any]:
    """A cache group; now and then a number is out of its limits."""
    kind = draw(st.sampled_from(("full", "full", "full", "window", "mamba")))
    group: dict[str, Any] = {"kind": kind, "block_size": 2}
    group["block_size"] = _mostly(draw, st.just(2), st.integers(-1, 5000))
    if kind == "window":
        group["window"] = _mostly(draw, st.sampled_from((2, 3, 4)), st.integers(-1, 9))
    if kind == "mamba" and draw(st.booleans()):
        group["mode"] = _mostly(draw, st.just("align"), st.sampled_from(("none", "nine")))
    if draw(st.integers(0, 15)) == 15:
        group["eagle"] = draw(st.booleans())
    return group


@st.composite
def an_engine(draw: st.DrawFn, name: str, role: str) -> dict[str, Any]:
    """An engine with some options."""
    engine: dict[str, Any] = {"name": name, "role": role}
    engine["groups"] = draw(st.lists(a_group(), min_size=1, max_size=2))
    options: dict[str, st.SearchStrategy[Any]] = {
        "num_blocks": st.sampled_from((4, 6, 9, 12)),
        "chunk_tokens": st.sampled_from((1, 3, 8)),
        "physical_per_logical": st.sampled_from((1, 2)),
        "prefix_caching": st.booleans(),
        "retention": st.sampled_from((None, 0, 2, 4)),
        "kv_events": st.booleans(),
        "store": st.booleans(),
        "policy": st.sampled_from(("fcfs", "priority", "priority", "lifo")),
        "max_requests": st.sampled_from((1, 2, 256)),
        "steps_in_flight": st.sampled_from((1, 2, 2, 3)),
        "drafts": st.sampled_from((0, 1, 2)),
        "match_unit": st.sampled_from((0, 2, 2, 1)),
        "hash_lookahead_tokens": st.sampled_from((0, 0, 1)),
    }
    for option in draw(st.lists(st.sampled_from([*options]), max_size=2, unique=True)):
        engine[option] = draw(options[option])
    return engine


@st.composite
def a_cluster(draw: st.DrawFn) -> tuple[bytes, str]:
    """A cluster made from nothing: often valid, often one that two features exclude."""
    pair = draw(st.booleans())
    roles = (("P", "prefill"), ("D", "decode")) if pair else (("E", "both"),)
    engines = [draw(an_engine(name, role)) for name, role in roles]
    if pair and draw(st.integers(0, 9)):
        engines[1]["groups"] = engines[0]["groups"]
    names = [_mostly(draw, st.just(f"r{n}"), st.sampled_from(ODD_TEXTS)) for n in range(2)]
    prompts = st.sampled_from(("a", "abc", "abcde", "abcdx", "名前é"))
    jobs: list[dict[str, Any]] = [
        {"name": name, "prompt": draw(prompts), "max_tokens": draw(st.integers(1, 2))}
        for name in names[: draw(st.integers(0, 2))]
    ]
    flags = ("aborts", "losses", "evictions", "resets", "sessions", "stray", "follow_up_turns")
    chosen = draw(st.lists(st.sampled_from(flags), max_size=1))
    cluster = {"engines": engines, "jobs": jobs, **dict.fromkeys(chosen, True)}
    if draw(st.booleans()):
        cluster["name"] = _mostly(draw, st.just("made"), st.sampled_from(ODD_TEXTS))
    if draw(st.integers(0, 7)) == 7:
        cluster["failures"] = draw(st.integers(-1, 3))
    return as_json(cluster), ""


def _hard(random: Random) -> tuple[bytes, str]:
    """Texts that are hard to decode. All of them are no clusters, or one with a long number."""
    good = as_json(preset(random.choice(SMALL)))
    depth = random.choice((100, 1000, 100_000, 3_000_000))
    return random.choice(
        (
            (b"[" * depth, "it is only brackets"),
            (b'{"engines":' * min(depth, 100_000), "it is only brackets"),
            (b'{"engines":' + b"[" * depth + b"]" * depth + b"}", "it is nested"),
            (b'{"engines": [], "failures": ' + b"9" * depth + b"}", "a number is long"),
            (good.replace(b'"num_blocks": ', b'"num_blocks": ' + b"9" * 4400), ""),
            (b'{"name": "' + b"n" * depth + b'", "engines": []}', "a name is long"),
            (b"\xef\xbb\xbf" + good, "it begins with a byte order mark"),
            (good.decode().encode("utf-16"), "it is UTF-16"),
            (good + good, "there are two objects"),
            (good + b"\0", "a zero byte follows"),
            (b" " * depth + good, ""),
            (b"\xed\xa0\x80" + good, "it is not UTF-8"),
            (good.replace(b'"r0"', b'"\\ud800"'), ""),
            (good.replace(b'"r0"', b'"r1"'), ""),
            (good.replace(b"2", b"NaN"), ""),
            (good.replace(b"2", b"2.0"), ""),
            (good.replace(b"{", b"{\n// comment\n"), "it has a comment"),
            (b"", "it is empty"),
            (b"null", "it is null"),
            (random.randbytes(random.randrange(1, 300)), ""),
        )
    )


def case(random: Random, key: str, number: int) -> Case:
    """A command that reads a cluster file."""
    way = random.choice(("changed", "changed", "changed", "made", "made", "bytes", "hard"))
    if way == "changed":
        data, why = drawn(changed_preset(), f"{key}:changed", number)
    elif way == "made":
        data, why = drawn(a_cluster(), f"{key}:made", number)
    elif way == "bytes":
        whole = (PRESETS / f"{random.choice(SMALL)}.json").read_bytes()
        data, why = bytes_changed(random, whole), ""
    else:
        data, why = _hard(random)
    name = random.choice(("own.json", "own.json", "own.json", "a b.json", "é.json"))
    argv = random.choice(
        (
            ("explore", "--config", name, "--states-max", "60"),
            ("explore", "--config", name, "--states-max", "60", "--json"),
            ("explore", "--config", name, "--states-max", "40", "--symmetry", "--json"),
            ("explore", "--config", name, "--states-max", "30", "--graph", "g.graphml"),
            ("sample", "--config", name, "--examples", "2", "--steps", "4", "--json"),
        )
    )
    return Case(
        argv,
        files={name: data},
        outputs=("kvproof-traces", "g.graphml"),
        invalid=why or cluster_file(data),
    )
