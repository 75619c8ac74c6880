"""The published JSON Schemas are those of the declared types, and what is written matches them."""

import json
from pathlib import Path

import pytest

from kvproof.reports.schemas import TYPES, text

ROOT = Path(__file__).parents[1]
TRACES = sorted(ROOT.glob("findings/*/trace.jsonl"))


@pytest.mark.parametrize("name", TYPES)
def test_the_schema_is_that_of_the_types(name: str) -> None:
    """Rewrite it with `python -m kvproof.reports.schemas`."""
    assert (ROOT / "docs" / "schemas" / name).read_text(encoding="utf-8") == text(name)


def test_only_these_schemas_are_published() -> None:
    assert {path.name for path in (ROOT / "docs" / "schemas").iterdir()} == set(TYPES)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.parent.name)
def test_a_trace_matches_its_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(text("trace.json")))
    for line in path.read_text(encoding="utf-8").splitlines():
        check.validate(json.loads(line))
        assert not check.is_valid({**json.loads(line), "comment": "mine"})
