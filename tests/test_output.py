"""What `--json` prints is of its declared type, and valid by the JSON Schema in docs/."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli import explore, sample
from kvproof.live.releases import Cache, Failed
from kvproof.model.errors import AdapterDrift
from kvproof.reports import schemas
from kvproof.reports.output import campaign, doctor, lists, proof, search
from kvproof.reports.output.base import OutputPart, Stopped, encoded
from kvproof.reports.output.registry import OUTPUTS
from kvproof.strategies.verdict import Outcome, Verdict
from tests.outputs import decoded

ROOT = Path(__file__).parent.parent
ONE = ["--obligation", "truncated_once"]
REFUTED = ["--fault", "front_trim", "--obligation", "trim_equal_positions"]

COMMANDS: list[tuple[list[str], type[OutputPart]]] = [
    (["explore", "--config", "pd-full"], search.Explored),
    (["explore", "--config", "pd-full", "--states-max", "5"], search.Explored),
    (["explore", "--fault", "front_trim"], search.Explored),
    (["sample", "--config", "full", "--examples", "3"], search.Sampled),
    (["sample", "--fault", "front_trim", "--examples", "20"], search.Sampled),
    (["campaign", "--units", "2", "--workers", "1", "--out", "kept"], campaign.Campaigned),
    (["prove", *ONE], proof.Proved),
    (["prove", *REFUTED], proof.Proved),
    (["explain"], lists.KindsOfNames),
    (["explain", "configs"], lists.Explained),
    (["explain", "references_are_exact"], lists.Explained),
    (["doctor"], doctor.Doctor),
]


@pytest.mark.parametrize(("argv", "kind"), COMMANDS, ids=str)
def test_an_output_is_of_its_type(as_json: Any, argv: list[str], kind: type[OutputPart]) -> None:
    _, record = as_json(*argv)
    assert type(decoded(json.dumps(record))) is kind


def test_the_output_about_a_trace(as_json: Any) -> None:
    _, found = as_json("explore", "--fault", "front_trim")
    for argv, kind in ((["replay"], search.Replayed), (["report"], lists.Report)):
        _, record = as_json(*argv, found["trace"])
        assert type(decoded(json.dumps(record))) is kind


def test_the_output_of_a_command_that_cannot_work(
    as_json: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drifted(*_: Any) -> None:
        raise AdapterDrift("This vLLM has no Request.id")

    monkeypatch.setattr(explore, "_exhausted", drifted)
    code, record = as_json("explore")
    assert code == 3
    stopped = decoded(json.dumps(record))
    assert isinstance(stopped, Stopped)
    assert stopped.reason.startswith("This vLLM has no Request.id.")
    monkeypatch.setattr(sample, "sampled", lambda *_: Outcome(Verdict.UNKNOWN, reason="no"))
    code, record = as_json("sample")
    assert code == 3
    assert type(decoded(json.dumps(record))) is search.Sampled


def test_the_output_on_releases(as_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: Any) -> None:
        raise Failed("no")

    monkeypatch.setattr(Cache, "installed", failed)
    monkeypatch.setattr("sys.stderr", open("progress", "w", encoding="utf-8"))  # noqa: SIM115
    trace = str(ROOT / "findings" / "superseded_state_reserved" / "trace.jsonl")
    code, record = as_json("replay", trace, "--cache", "cache", "--releases", "0.18.0")
    assert (code, record["releases"]["0.18.0"]) == (3, {"verdict": "UNKNOWN", "why": "no"})
    assert isinstance(decoded(json.dumps(record)), search.OnReleases)


def test_a_text_that_is_no_unicode_is_printed() -> None:
    output = Stopped(command="sample", exit_code=3, reason="é\ud800\x00")
    text = encoded(output)
    assert text.isascii()
    assert json.loads(text)["reason"] == output.reason


def test_the_schema_holds_for_outputs(as_json: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(schemas.text("output.json")))
    for argv in (["explore", "--fault", "front_trim"], ["prove", *ONE], ["explain", "faults"]):
        _, record = as_json(*argv)
        check.validate(record)
        assert not check.is_valid(record | {"more": 1})
        assert not check.is_valid(record | {"exit_code": 7})


def test_every_command_has_an_output() -> None:
    from kvproof.cli.main import COMMANDS as ALL

    tags = {kind.__struct_config__.tag for kind in OUTPUTS}
    assert tags == {*ALL, None}
