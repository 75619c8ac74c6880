"""A checkpoint with an error is refused or makes no difference, and a forged one gives no false
verdict."""

import os
import pickle
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kvproof.invariants.registry import CHECKS as ASKED
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer import checkpoint
from kvproof.strategies.explorer.explorer import Checkpoint, explore
from kvproof.strategies.explorer.saved_graph import SavedGraph
from kvproof.strategies.verdict import Verdict
from tests.planted import under
from tests.sentences import two_sentences

NAME = "pd-failing"
CLUSTER = CLUSTERS[NAME]
CHECKS = [*ASKED.values(), *conformance_checks()]
ABOUT = checkpoint.scope(CLUSTER, [i.id for i in CHECKS])
HEAD_BYTES = checkpoint.HEAD.size + checkpoint.CHECKSUM_BYTES

FLIPS, CUTS = 200, 50


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The checkpoint of a search that was cut at 200 states."""
    path = tmp_path_factory.mktemp("kept") / "c"
    explore(CLUSTER, states_max=200, kept=Checkpoint(path))
    return path.read_bytes()


@pytest.fixture
def graph(kept: bytes) -> SavedGraph:
    return msgspec.msgpack.decode(kept[HEAD_BYTES:], type=checkpoint.CheckpointContent).graph


def resumed_from(content: bytes, path: Path) -> Any:
    path.write_bytes(content)
    return explore(CLUSTER, kept=Checkpoint(path, resume=True))


def sealed(data: bytes) -> bytes:
    """Data with a head and the right checksum."""
    head = checkpoint.HEAD.pack(checkpoint.MAGIC, checkpoint.VERSION, len(data))
    return head + checkpoint._checksum(head, (data,)) + data


def refusal(content: bytes, path: Path) -> str:
    """The error of a checkpoint, which must be refused."""
    with pytest.raises(UsageError) as refused:
        resumed_from(content, path)
    assert two_sentences(str(refused.value)), str(refused.value)
    return str(refused.value)


def test_one_bit_makes_no_difference_or_is_refused(kept: bytes, tmp_path: Path) -> None:
    source = random.Random(13)
    for _ in range(FLIPS):
        broken = bytearray(kept)
        # Every second one in the head, where a bit says most.
        place = source.randrange(HEAD_BYTES if source.random() < 0.5 else len(kept))
        broken[place] ^= 1 << source.randrange(8)
        refusal(bytes(broken), tmp_path / "c")


def test_a_cut_checkpoint_is_refused(kept: bytes, tmp_path: Path) -> None:
    source = random.Random(13)
    for length in (0, 1, 7, HEAD_BYTES, *(source.randrange(len(kept)) for _ in range(CUTS))):
        refusal(kept[:length], tmp_path / "c")
    assert "another length" in refusal(kept + b"\0", tmp_path / "c")


def test_the_command_refuses_and_keeps_the_file(kept: bytes, run: Any) -> None:
    path = Path("c")
    path.write_bytes(kept[:-1])
    code, out, err = run("explore", "--config", NAME, "--checkpoint", "c", "--resume")
    assert (code, out, path.read_bytes()) == (2, "", kept[:-1])
    assert two_sentences(err)


def test_a_full_disk_takes_nothing_from_the_verdict(run: Any) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        code, out, err = run("explore", "--config", NAME, "--checkpoint", "c")
        cut = run("explore", "--config", NAME, "--checkpoint", "c", "--states-max", "9")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (code, out.split()[0]) == (2, "EXHAUSTED")
    assert two_sentences(err)
    assert "File too large" in err
    assert (cut[0], cut[1].split()[0]) == (3, "UNKNOWN:")
    assert "To continue" not in cut[1]
    assert list(Path().iterdir()) == []


def test_the_users_files_beside_it_are_kept(run: Any) -> None:
    for name in ("c.part", ".c.part", "c.tmp"):
        Path(name).write_text("mine")
    assert run("explore", "--config", NAME, "--checkpoint", "c")[0] == 0
    assert run("explore", "--config", NAME, "--checkpoint", "c", "--resume")[0] == 0
    assert {path.read_text() for path in Path().iterdir() if path.name != "c"} == {"mine"}
    assert len(list(Path().iterdir())) == 4


class Mischief:
    """What a checkpoint must not be able to do."""

    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps(Mischief()), "was made by an older kvproof"),
        (pickle.dumps({"kind": "kvproof-checkpoint"}), "was made by an older kvproof"),
        (b"\x93ABCDEF", "is not a checkpoint"),
        (b"[1,2,3]", "is not a checkpoint"),
        (checkpoint.HEAD.pack(checkpoint.MAGIC, 2, 0), "was made by another kvproof"),
        (checkpoint.HEAD.pack(checkpoint.MAGIC, 1, 2**63), "another length than it says"),
    ],
)
def test_another_file_is_refused(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(content, tmp_path / "c")
    assert not Path("executed").exists()


def changed(columns: tuple[memoryview, ...], place: int, at: int, by: int) -> tuple[Any, ...]:
    """Columns of numbers with one byte changed."""
    column = bytearray(columns[place])
    column[at] ^= by
    return (*columns[:place], memoryview(column), *columns[place + 1 :])


def without_last(columns: tuple[memoryview, ...]) -> tuple[Any, ...]:
    sizes = [1 if place == 3 else 4 for place in range(len(columns))]
    return tuple(column[:-size] for column, size in zip(columns, sizes, strict=True))


def with_engine(graph: SavedGraph, **fields: Any) -> SavedGraph:
    """The graph with other fields in its last engine."""
    *others, last = graph.components.engines
    components = replace(graph.components, engines=[*others, last._replace(**fields)])
    return replace(graph, components=components)


FORGED: dict[str, Callable[[SavedGraph], SavedGraph]] = {
    "a state less": lambda g: replace(g, states=g.states[:-20]),
    "a half state": lambda g: replace(g, states=g.states[:-4]),
    "a half number": lambda g: replace(g, states=g.states[:-1]),
    "no state": lambda g: replace(g, states=g.states[:0], expanded=0),
    "a state twice": lambda g: replace(g, states=memoryview(bytes(g.states) + g.states[-20:])),
    "a component that is none": lambda g: replace(g, states=changed((g.states,), 0, -4, 64)[0]),
    "another initial state": lambda g: replace(g, states=changed((g.states,), 0, 3, 8)[0]),
    "an edge to no state": lambda g: replace(g, edges=changed(g.edges, 1, 40, 1)),
    "an edge to another state": lambda g: replace(g, edges=changed(g.edges, 1, -1, 1)),
    "an edge from another state": lambda g: replace(g, edges=changed(g.edges, 0, -1, 255)),
    "an event that is none": lambda g: replace(g, edges=changed(g.edges, 2, 8, 1)),
    "a renaming": lambda g: replace(g, edges=changed(g.edges, 3, 8, 1)),
    "an edge less": lambda g: replace(g, edges=without_last(g.edges)),
    "a column too short": lambda g: replace(g, edges=(*g.edges[:3], g.edges[3][:-1])),
    "all is expanded": lambda g: replace(g, expanded=len(g.states) // 20),
    "more is expanded": lambda g: replace(g, expanded=2**40),
    "an event less": lambda g: replace(g, events=g.events[:-1]),
    "other events": lambda g: replace(g, events=g.events[::-1]),
    "an event twice": lambda g: replace(g, events=[*g.events, g.events[0]]),
    "a violation": lambda g: replace(g, violated=True),
    "a margin of no state": lambda g: replace(g, margins={"pool_adds_up": (0, 10**6)}),
    "a smaller margin": lambda g: replace(g, margins={"pool_adds_up": (-5, 3)}),
    "a margin of nothing": lambda g: replace(g, margins={**g.margins, "nothing": (1, 1)}),
    "no margins": lambda g: replace(g, margins={}),
    "a goal of nothing": lambda g: replace(g, goals={"nothing": 1}),
    "a goal too early": lambda g: replace(g, goals=dict.fromkeys(g.goals, 0)),
    "no goals": lambda g: replace(g, goals={}),
    "another engine": lambda g: with_engine(g, name="X"),
    "a huge number": lambda g: with_engine(g, free=(2**62,)),
    "a negative number": lambda g: with_engine(g, free=(-2,)),
    "a long text": lambda g: with_engine(g, dead=Death(message="x" * 10**6)),
    "a long list": lambda g: with_engine(g, free=(0,) * 10**6),
    "a request that is none": lambda g: with_engine(g, running=("nobody",)),
    "an engine without blocks": lambda g: with_engine(g, blocks=(), memory=()),
    "a copy that goes on": lambda g: with_engine(g, copies=((0, 1, 2),)),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_gives_no_false_verdict(
    name: str, graph: SavedGraph, tmp_path: Path
) -> None:
    data = msgspec.msgpack.encode(checkpoint.CheckpointContent(ABOUT, FORGED[name](graph)))
    assert "is broken" in refusal(sealed(data), tmp_path / "c")


def test_what_was_not_changed_is_not_refused(graph: SavedGraph, tmp_path: Path) -> None:
    data = msgspec.msgpack.encode(checkpoint.CheckpointContent(ABOUT, graph))
    assert resumed_from(sealed(data), tmp_path / "c").coverage == explore(CLUSTER).coverage


def nodes(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places in plain data."""
    if not isinstance(data, dict | list):
        return [path]
    items = data.items() if isinstance(data, dict) else enumerate(data)
    return [path, *(place for key, item in items for place in nodes(item, (*path, key)))]


def mutated(data: Any, path: tuple[Any, ...], source: random.Random) -> Any:
    """Plain data with another value at one place."""
    if path:
        copy = dict(data) if isinstance(data, dict) else list(data)
        copy[path[0]] = mutated(copy[path[0]], path[1:], source)
        return copy
    if isinstance(data, int) and not isinstance(data, bool):
        return source.choice([data + 1, data - 1, 0, 2**40])
    if isinstance(data, bytes) and data:
        place = source.randrange(len(data))
        return data[:place] + bytes([data[place] ^ 1 << source.randrange(8)]) + data[place + 1 :]
    if isinstance(data, list) and data:
        return source.choice([data[1:], data[::-1], [*data, data[0]]])
    return source.choice([None, 0, "r1", [], {}])


def test_any_change_is_refused_or_makes_no_difference(kept: bytes, tmp_path: Path) -> None:
    data, source = msgspec.msgpack.decode(kept[HEAD_BYTES:]), random.Random(13)
    places = [path for path in nodes(data) if path]
    high = [path for path in places if len(path) < 4]
    whole, refusals = explore(CLUSTER), list[str]()
    for _ in range(60):
        forged = mutated(data, source.choice(source.choice([places, high])), source)
        (tmp_path / "c").write_bytes(sealed(msgspec.msgpack.encode(forged)))
        try:
            outcome = explore(CLUSTER, kept=Checkpoint(tmp_path / "c", resume=True))
        except UsageError as error:
            refusals.append(str(error))
        else:
            assert outcome.verdict is Verdict.EXHAUSTED
            assert outcome.coverage == whole.coverage
    assert refusals
    assert [error for error in refusals if not two_sentences(error)] == []


def test_a_violation_is_taken_again(tmp_path: Path) -> None:
    fault = FAULTS["full_hit_gives_up_load"]
    cluster, faults = CLUSTERS[fault.cluster], [fault]
    path = tmp_path / "c"
    whole = under(faults, explore, cluster, kept=Checkpoint(path))
    again = under(faults, explore, cluster, kept=Checkpoint(path, resume=True))
    assert (again.finding, again.events) == (whole.finding, whole.events)
    assert again.coverage == whole.coverage
    content = msgspec.msgpack.decode(
        path.read_bytes()[HEAD_BYTES:], type=checkpoint.CheckpointContent
    )
    for forged in (
        replace(content.graph, violated=False),
        replace(content.graph, violated=True, expanded=content.graph.expanded + 1),
    ):
        checkpoint.save(path, content.scope, forged)
        with pytest.raises(UsageError, match="is broken"):
            under(faults, explore, cluster, kept=Checkpoint(path, resume=True))
