"""Cluster files: strictly decoded, found by any name, listed, shown, and of a size that is searched
quickly."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from kvproof.cli.main import main
from kvproof.model.config.config_json import parse, without_defaults
from kvproof.model.errors import UsageError
from kvproof.model.presets import CLUSTERS, FOLDER, Presets, cluster_named
from kvproof.model.presets.random_clusters import random_cluster
from tests.sentences import two_sentences


def pair(**fields: Any) -> dict[str, Any]:
    """The preset pd-default as plain data, with fields of the cluster changed."""
    return json.loads(json.dumps(to_builtins(CLUSTERS["pd-default"]))) | fields


def engines(**fields: Any) -> dict[str, Any]:
    """It with fields of both engines changed."""
    data = pair()
    return data | {"engines": [engine | fields for engine in data["engines"]]}


def jobs(*changes: dict[str, Any]) -> dict[str, Any]:
    """It with these jobs."""
    return pair(jobs=[{"name": f"r{n}", "prompt": "ab"} | c for n, c in enumerate(changes)])


def alone(**fields: Any) -> dict[str, Any]:
    """A cluster of one engine as plain data, with fields of the engine changed."""
    groups = [{"kind": "full", "block_size": 2}]
    return {
        "name": "custom",
        "engines": [{"name": "E", "groups": groups, "num_blocks": 4, **fields}],
        "jobs": [{"name": "r0", "prompt": "abc"}],
    }


def grouped(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    """It with these fields of its groups."""
    return alone(groups=[{"kind": "full", "block_size": 2} | each for each in groups], **more)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (jobs({}, {"name": "r0"}), "$.jobs[1].name: Two jobs have the name r0"),
        (jobs({"name": "x" * 65}), "Use text of 1 to 64 printable characters"),
        (jobs({"name": "a\x1b[31m"}), "$.jobs[0].name: name of job is 'a\\x1b[31m'"),
        (jobs({"prompt": "a?"}), "$.jobs[0].prompt: A prompt of job r0 has the token '?'"),
        (jobs({"follows": "r1"}, {}), "$.jobs[0].follows: Job r0 follows r1, and no earlier job"),
        (jobs({"prompt": "ß", "embeds": True}), "no capital"),
        (jobs({"embeds": True}, {"prompt": "A"}), "Use small letters for token ids"),
        (pair(failures=-1), "$.failures: expected `int` >= 0"),
        (pair(aborts="false"), "$.aborts: expected `bool`, got `str`. Use true or false."),
        (pair(evictionss=True), "unknown field `evictionss`. Use evictions."),
        (engines(name="E"), "$.engines[1].name: Two engines have the name E"),
        (grouped({"kind": "ful"}), "kind: invalid enum value 'ful'. Use full."),
        (grouped({"kind": "window"}), "groups[0].window: window of group is 0"),
        (
            alone(num_blocks=0),
            "$.engines[0].num_blocks: expected `int` >= 2. Use a whole number from 2 to",
        ),
        (alone(role="prefill"), "one prefill and one decode engine"),
        (
            grouped({"block_size": 4}, {"kind": "window", "block_size": 6, "window": 2}),
            "do not divide",
        ),
        (alone(physical_per_logical=3), "not a multiple"),
        (
            grouped({"block_size": 4}, {"kind": "window", "window": 2}, kv_events=True),
            "a parent that full attention never reported",
        ),
        (alone(retention=3), "Use a multiple of 2, or 0"),
        (alone(retention=4), "only full attention"),
        ({"name": "x"}, "missing required field `engines`. Use an object with engines."),
        ([1], "not valid at $: expected `object`, got `array`"),
        (
            {**alone(), "jobs": [{"name": "r0"}]},
            "$.jobs[0]: object missing required field `prompt`. Use an object with name, prompt.",
        ),
        (
            engines(num_blocks=4),
            "$.engines[0].num_blocks: Job r0 needs 10 blocks",
        ),
    ],
)
def test_a_wrong_field_is_named(refused: Any, data: dict[str, Any], says: str) -> None:
    Path("bad.cfg").write_text(json.dumps(data), encoding="utf-8")
    said = refused("explore", "--config", "bad.cfg")
    assert says in said
    assert "bad.cfg" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "is not valid"),
        (b'{"engines": [], "engines": []}', "length >= 1"),
        (b'{"name": "\\ud800", "engines": []}', "surrogate"),
        (b'{"engines":' * 100_000, "$.engines"),
        (b'{"engines": [{"num_blocks": ' + b"9" * 5000 + b"}]}", "$.engines[0].num_blocks"),
    ],
)
def test_a_file_that_is_no_cluster(refused: Any, content: bytes, says: str) -> None:
    Path("bad").write_bytes(content)
    said = refused("explore", "--config", "bad")
    assert says in said
    assert len(said) < 1000


def test_a_field_that_stands_twice_is_refused() -> None:
    whole = json.dumps(to_builtins(CLUSTERS["pd"]))
    twice = whole.replace('"role": "prefill"', '"role": "prefill", "role": "prefill"', 1)
    assert parse(whole, "this").cluster == CLUSTERS["pd"]
    with pytest.raises(UsageError, match="has the field role twice") as refusal:
        parse(twice, "This")
    assert two_sentences(str(refusal.value))


def test_any_path_is_a_file_and_a_preset_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = without_defaults(CLUSTERS["full"]) | {"name": "mine"}
    for name in ("own.cfg", "noSuffix", "pd"):
        Path(name).write_text(json.dumps(mine), encoding="utf-8")
    assert cluster_named("own.cfg").name == "mine"
    assert cluster_named("noSuffix").name == "mine"
    assert cluster_named("pd") == CLUSTERS["pd"]
    assert cluster_named("./pd").name == "mine"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nosuch", "Use a name that kvproof explain configs lists."),
        ("", "The value of --config is empty. Use a value"),
        ("pd-defualt", "Use pd-default, or another name"),
        ("no/such", "cannot be read (No such file"),
        ("x" * 300, "File name too long"),
        ("a\x1b[31m\ud800", "There is no cluster"),
        ("random:" + "9" * 5000, "has no seed"),
        ("random:\u0663", "has no seed"),
        ("random:", "has no seed"),
        ("random:-1", "has no seed"),
    ],
)
def test_a_name_of_nothing(refused: Any, name: str, says: str) -> None:
    assert says in refused("explore", "--config", name)


@pytest.mark.parametrize("name", ["pd-default", "turns", "random:7", "random:40"])
def test_what_is_shown_is_a_cluster_file(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name, "--json"]) == 0
    shown = capsys.readouterr().out
    (tmp_path / "c").write_text(shown, encoding="utf-8")
    assert cluster_named(str(tmp_path / "c")) == cluster_named(name)


def test_plain_data_is_the_cluster() -> None:
    for cluster in (*CLUSTERS.values(), *map(random_cluster, range(50))):
        for data in (cluster, without_defaults(cluster)):
            assert parse(json.dumps(to_builtins(data)), "this").cluster == cluster


@pytest.mark.parametrize("name", ["full", "pd"])
@pytest.mark.parametrize(
    ("of_engines", "of_jobs"),
    [
        ({"num_blocks": 4096}, {}),
        ({"num_blocks": 4096, "chunk_tokens": 1_000_000}, {"prompt": "abcdefgh" * 64}),
        ({"num_blocks": 4096, "chunk_tokens": 1_000_000}, {"max_tokens": 512}),
    ],
)
def test_the_largest_clusters_are_searched(
    name: str, of_engines: dict[str, Any], of_jobs: dict[str, Any], as_json: Any
) -> None:
    """The limits of the declared types; a larger number is refused. A search of ten states takes
    seconds, so a step whose work grows with the square of a limit does not end in the time that a
    run of the tests has."""
    data = without_defaults(CLUSTERS[name])
    data["engines"] = [engine | of_engines for engine in data["engines"]]
    data["jobs"] = [job | of_jobs for job in data["jobs"]]
    Path("large.json").write_text(json.dumps(data), encoding="utf-8")
    code, record = as_json("explore", "--config", "large.json", "--states-max", "10")
    assert code in (0, 3)
    assert record["states_distinct"] > 0


def test_a_preset_is_called_as_its_file_and_says_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text((FOLDER / "full.json").read_text())
    with pytest.raises(UsageError, match=r"mine\.json has the name 'full'\. Use 'mine', as the "):
        Presets(tmp_path)["mine"]
    (tmp_path / "mine.json").write_text(json.dumps(alone(name="E") | {"name": "mine"}))
    with pytest.raises(UsageError, match=r"mine\.json does not say what it is for\. Use a "):
        Presets(tmp_path)["mine"]
