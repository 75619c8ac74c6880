"""Bad input: exit code 2, two sentences on standard error, no traceback, nothing lost."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import cluster_named
from kvproof.model.traces.trace import Trace, fresh_path, write
from kvproof.reports import junit

SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


def two_sentences(text: str) -> bool:
    """Whether this is one line of two sentences."""
    line = text.rstrip("\n")
    return "\n" not in line and line.endswith(".") and len(SENTENCE_END.findall(line)) == 2


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Run a command line that must be refused; gives its message."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> str:
        code = main(argv)
        captured = capsys.readouterr()
        assert code == 2
        assert captured.out == ""
        assert two_sentences(captured.err), captured.err
        return captured.err

    return call


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["explor"], "Write explore instead"),
        (["explore", "--fault", "front_trimm"], "Write front_trim instead"),
        (["explore", "--invariant", "pool_add_up"], "Write pool_adds_up instead"),
        (["explore", "--config", "pd-ful"], "Write pd-full instead"),
        (["explore", "--config", "missing.json"], "No such file"),
        (["explore", "--config", "."], "There is no cluster"),
        (["explore", "--states-max", "0"], "'0' is not a whole number from 1 on"),
        (["explore", "--states-max", "many"], "'many' is not a whole number"),
        (["explore", "--seed", "x"], "--seed"),
        (["explore", "--exampels", "3"], "--exampels"),
        (["explore", "--conf", "pd"], "--conf"),
        (["explore", "--config"], "--config"),
        ([], "COMMAND"),
        (["sample", "--machine", "lief"], "--machine"),
        (["sample", "--examples", "-1"], "--examples"),
        (["sample", "--machine", "live", "--fault", "front_trim"], "mistake of the model"),
        (["prove", "--obligation", "trim_equal_count"], "Write trim_equal_counts instead"),
        (["prove", "--timeout-s", "nan"], "above 0"),
        (["prove", "--timeout-s", "0"], "above 0"),
        (["replay", "missing.jsonl"], "No such file"),
        (["replay", "/"], "cannot be read"),
        (["report", "missing.jsonl"], "No such file"),
        (["matrix", "--fault", "nothing"], "no fault named"),
    ],
)
def test_command_line(refused: Any, argv: list[str], says: str) -> None:
    assert says in refused(*argv)


def test_faults_of_different_clusters_need_a_config(refused: Any) -> None:
    one = FAULTS["front_trim"]
    other = next(
        f for f in FAULTS.values() if f.cluster != one.cluster and f.replaces[0] != one.replaces[0]
    )
    said = refused("explore", "--fault", one.name, "--fault", other.name)
    assert "--config" in said


def test_faults_that_replace_one_rule_exclude_each_other(refused: Any) -> None:
    said = refused("prove", "--fault", "front_trim", "--fault", "last_zero_blocks_yield_all")
    assert "same rule" in said


def cluster(**engine: Any) -> dict[str, Any]:
    """A good cluster as plain data, with fields of its engine changed."""
    groups = [{"kind": "full", "block_size": 2}]
    return {
        "name": "custom",
        "engines": [{"name": "E", "groups": groups, "num_blocks": 4, **engine}],
        "jobs": [{"name": "r0", "prompt": "abc"}],
    }


def group(**fields: Any) -> dict[str, Any]:
    return cluster(groups=[{"kind": "full", "block_size": 2, **fields}])


def test_the_good_cluster_is_explored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.json").write_text(json.dumps(cluster()))
    assert main(["explore", "--config", str(tmp_path / "good.json")]) == 0
    assert capsys.readouterr().out.startswith("EXHAUSTED")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (group(block_size=0), "block_size is 0"),
        (group(block_size="2"), "block_size is '2'"),
        (group(block_size=5000), "1 to 4096"),
        (group(kind="ful"), "Write full instead"),
        (group(kind="window"), "window is 0"),
        (group(blocksize=2), "Write block_size instead"),
        (cluster(num_blocks=0), "num_blocks of engine E is 0"),
        (cluster(num_blocks=1), "num_blocks of engine E is 1"),
        (cluster(chunk_tokens=0), "chunk_tokens"),
        (cluster(groups=[]), "no cache group"),
        (cluster(groups=3), "Write a list"),
        (cluster(role="prefil"), "Write prefill instead"),
        (cluster(role="prefill"), "one prefill and one decode engine"),
        (
            cluster(
                groups=[
                    {"kind": "full", "block_size": 4},
                    {"kind": "window", "block_size": 6, "window": 2},
                ]
            ),
            "do not divide",
        ),
        (cluster(physical_per_logical=3), "not a multiple"),
        (
            cluster(
                groups=[
                    {"kind": "full", "block_size": 4},
                    {"kind": "window", "block_size": 2, "window": 2},
                ],
                kv_events=True,
            ),
            "a parent that full attention never reported",
        ),
        (cluster(retention=-2), "retention of engine E is -2"),
        (cluster(retention=3), "Use a multiple of 2, or 0"),
        (cluster(retention=4), "only full attention"),
        (cluster(retention=0, store=True), "sparse retention and a store"),
        ({"engines": []}, "none or share a name"),
        ({"engines": [3]}, "named fields"),
        ({"name": "x"}, "field engines"),
        ([1], "field engines"),
        ({**cluster(), "jobs": [{"name": "r0", "prompt": ""}]}, "prompt tokens of r0 is 0"),
        ({**cluster(), "jobs": [{"name": "r0"}]}, "incomplete"),
        ({**cluster(), "job": []}, "Write jobs instead"),
        ({**cluster(), "load_failure": "fial"}, "Write fail instead"),
    ],
)
def test_config_file(refused: Any, tmp_path: Path, config: Any, says: str) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(config))
    assert says in refused("explore", "--config", "bad.json")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"nul"])
def test_config_file_that_is_not_json(refused: Any, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(text)
    assert "bad.json" in refused("explore", "--config", "bad.json")


@pytest.fixture
def lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of a good trace."""
    main(["explore", "--fault", "front_trim", "--traces", str(tmp_path / "good")])
    capsys.readouterr()
    (path,) = (tmp_path / "good").iterdir()
    return path.read_text().splitlines(keepends=True)


def bad_trace(refused: Any, text: str) -> str:
    """What `replay` and `report` say to a trace file of this text."""
    Path("bad.jsonl").write_text(text)
    said = refused("replay", "bad.jsonl")
    assert refused("report", "bad.jsonl") == said
    assert isinstance(said, str)
    return said


def test_trace_cut_after_any_line(refused: Any, lines: list[str]) -> None:
    for count in range(len(lines)):
        said = bad_trace(refused, "".join(lines[:count]))
        assert f"Line {max(1, count + (count > 0))} of bad.jsonl" in said
        assert "cut off" in said


def test_trace_cut_within_a_line(refused: Any, lines: list[str]) -> None:
    text = "".join(lines)
    assert "Line 1 of" in bad_trace(refused, text[:20])
    for end in (len(text) - 1, len(text) - 5, len(text) // 2):
        assert "cut off" in bad_trace(refused, text[:end])


def edited(lines: list[str], number: int, **fields: Any) -> str:
    """The trace with fields of one line (from 1) changed; None takes a field out."""
    record = {**json.loads(lines[number - 1]), **fields}
    record = {name: value for name, value in record.items() if value is not None}
    return "".join([*lines[: number - 1], json.dumps(record) + "\n", *lines[number:]])


@pytest.mark.parametrize(
    ("number", "fields", "says"),
    [
        (1, {"schema": 4}, "newer than the 3"),
        (1, {"schema": 0}, "never was"),
        (1, {"schema": True}, "no usable field schema"),
        (1, {"kind": "something"}, "does not say kind"),
        (1, {"config": None}, "no usable field config"),
        (1, {"config": {"engines": []}}, "none or share a name"),
        (1, {"faults": "front_trim"}, "no usable field faults"),
        (1, {"faults": [3]}, "not a list of texts"),
        (1, {"seed": "0"}, "no usable field seed"),
        (1, {"versions": None}, "no usable field versions"),
        (2, {"step": 3}, "is step 3 where step 1 belongs"),
        (2, {"event": {"type": "Sumbit", "engine": "P", "request": "r0"}}, "Submit"),
        (2, {"event": {"type": "Submit", "engine": "P"}}, "fields"),
        (2, {"event": {"type": "Submit", "engine": 3, "request": "r0"}}, "Write a name"),
        (2, {"event": {"type": "Schedule", "engine": "P"}}, "Write the list"),
        (2, {"event": 3}, "not an event"),
        (2, {"event": None}, "no usable field end"),
        (2, {"removed": None}, "no usable field removed"),
        (2, {"changed": [1]}, "no usable field changed"),
        (2, {"changed": None}, "only some events"),
    ],
)
def test_broken_trace(
    refused: Any, lines: list[str], number: int, fields: dict[str, Any], says: str
) -> None:
    said = bad_trace(refused, edited(lines, number, **fields))
    where = len(lines) if says == "only some events" else number
    assert f"Line {where} of bad.jsonl" in said
    assert says in said


def test_broken_ends_of_a_trace(refused: Any, lines: list[str]) -> None:
    text, last = "".join(lines), len(lines)
    assert "no usable field reasons" in bad_trace(
        refused, edited(lines, last - 1, finding={"invariant": "pool_adds_up"})
    )
    assert "counts 99 steps" in bad_trace(refused, edited(lines, last, end={"steps": 99}))
    assert "follows the end record" in bad_trace(refused, text + text)
    assert "is not JSON" in bad_trace(refused, lines[0] + "{]\n" + "".join(lines[1:]))
    assert "not a JSON object" in bad_trace(refused, lines[0] + "[]\n" + "".join(lines[1:]))
    assert "no event before it" in bad_trace(refused, "".join([lines[0], *lines[-2:]]))


@pytest.mark.parametrize(
    "changed",
    [
        {"nonsense": 1},
        {"/engines": 1},
        {"/engines/P/blocks/one/refs": 1},
        {"/engines/P/requests/r0/tables": 3},
        {"/engines/Q/free": []},
        {"/transfers": {}},
    ],
)
def test_changes_that_are_no_states(
    refused: Any, lines: list[str], changed: dict[str, Any]
) -> None:
    Path("bad.jsonl").write_text(edited(lines, len(lines) - 2, changed=changed, removed=[]))
    assert "do not add up" in refused("report", "bad.jsonl")
    assert main(["replay", "bad.jsonl"]) == 1


def test_trace_that_is_not_text(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refused("replay", "bad.jsonl")


def test_trace_with_names_nobody_knows(refused: Any, lines: list[str]) -> None:
    trace = edited(lines, 1, faults=["front_trimm"])
    Path("bad.jsonl").write_text(trace)
    assert "Write front_trim instead" in refused("replay", "bad.jsonl")
    Path("bad.jsonl").write_text("".join(lines).replace('"engine": "P"', '"engine": "Q"'))
    assert "no engine named 'Q'" in refused("replay", "bad.jsonl")
    finding = {"invariant": "pool_add_up", "reasons": ["a", "b"]}
    Path("bad.jsonl").write_text(edited(lines, len(lines) - 1, finding=finding))
    assert "Write pool_adds_up instead" in refused("replay", "bad.jsonl")


def test_files_in_the_way_are_left_alone(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    assert "not overwritten" in refused("gate", "--without-live", "--junit", "taken")
    argv = ["explore", "--fault", "front_trim", "--traces", "taken"]
    assert "cannot be made" in refused(*argv)
    assert "cannot be made" in refused(*argv[:-1], "taken/below")
    assert "folder that is missing" in refused("gate", "--without-live", "--junit", "no/j.xml")
    with pytest.raises(UsageError, match="not overwritten") as refusal:
        junit.write(tmp_path / "taken", "suite", [])
    assert two_sentences(str(refusal.value))
    assert (tmp_path / "taken").read_text() == "mine"
    trace = Trace(cluster_named("pd"), (), ())
    write(fresh_path(tmp_path, "t"), trace)
    before = (tmp_path / "t.jsonl").read_text()
    with pytest.raises(UsageError, match="not overwritten") as refusal:
        write(tmp_path / "t.jsonl", trace)
    assert two_sentences(str(refusal.value))
    assert (tmp_path / "t.jsonl").read_text() == before


WITHOUT_VLLM = """
import sys
sys.modules["vllm"] = None
from kvproof.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_vllm(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the program where vLLM cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_VLLM, *argv],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


def test_live_without_vllm(tmp_path: Path) -> None:
    done = without_vllm(tmp_path, "sample", "--machine", "live")
    assert (done.returncode, done.stdout) == (2, "")
    assert two_sentences(done.stderr), done.stderr
    assert "vLLM" in done.stderr


def test_everything_else_works_without_vllm(tmp_path: Path) -> None:
    done = without_vllm(tmp_path, "explore", "--config", "pd-full")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("EXHAUSTED")


def test_a_gate_without_vllm_is_not_green(tmp_path: Path) -> None:
    done = without_vllm(tmp_path, "gate", "--config", "pd-full", "--junit", "j.xml", "--json")
    assert done.returncode == 3
    parts = {part["command"]: part["verdict"] for part in json.loads(done.stdout)["parts"]}
    assert parts == {"explore": "EXHAUSTED", "prove": "PROVED", "sample live": "UNKNOWN"}
    assert 'errors="1"' in (tmp_path / "j.xml").read_text()
