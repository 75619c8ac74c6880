"""The table of obligations in reports/ is what is proved, but for the times."""

import re
from pathlib import Path

import pytest

from kvproof.cli.main import main
from kvproof.model.faults.registry import FAULTS
from kvproof.proofs.obligations import table
from kvproof.proofs.prove import prove
from tests.planted import under

pytestmark = pytest.mark.proof

COMMITTED = Path(__file__).parent.parent / "reports" / "obligations.md"


def without_times(text: str) -> str:
    return re.sub(r"\| \d+ \| (?=\S+ >=|\d+ <=|`)", "| ms | ", text)


def without_faults(text: str) -> str:
    """Without what refutes each claim: a new fault may refute more than the file knows."""
    return re.sub(r"\| (`\w+`(, )?)+ \|$", "| faults |", text, flags=re.MULTILINE)


def test_the_committed_table_is_what_is_proved() -> None:
    made, kept = table(prove()), COMMITTED.read_text(encoding="utf-8")
    assert without_faults(without_times(made)) == without_faults(without_times(kept))
    assert without_times(made) != made
    for now, then in zip(made.splitlines(), kept.splitlines(), strict=True):
        assert set(re.findall(r"`\w+`", then)) <= set(re.findall(r"`\w+`", now))


def test_a_refuted_claim_shows() -> None:
    faults = [FAULTS["window_of_loaded_tokens"]]
    made = table(
        under(faults, prove, names=["window.null_is_not_needed", "window_of_a_load_is_enough"])
    )
    assert "VIOLATED: window.null_is_not_needed" in made
    assert "VIOLATED: window_of_a_load_is_enough" in made
    assert "PROVED |" not in made


def test_the_program_writes_it_once(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    command = ["prove", "--obligation", "pool.pool_adds_up", "--table", str(path)]
    assert main(command) == 0
    assert "| `pool_adds_up` |" in path.read_text(encoding="utf-8")
    assert main(command) == 2
