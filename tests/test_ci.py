"""CI and the Makefile run README's commands as they are written there: nobody who types them runs
other tests than CI does."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent

COMMANDS = re.findall(
    r"^ {4}(make [^#\n]*?) *(?:#.*)?$",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)

STUB = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
env | cut -d= -f1 | sort > "$CALLS.$1"
"""

OF_THE_SHELL = {"_", "OLDPWD", "PWD", "SHLVL", "SHELLOPTS"}


def test_ci_runs_the_commands_of_the_readme_and_sets_no_variable(tmp_path: Path) -> None:
    (tmp_path / "make").write_text(STUB, encoding="utf-8")
    (tmp_path / "make").chmod(0o755)
    calls = tmp_path / "calls"
    given = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CALLS": str(calls)}
    subprocess.run([ROOT / ".ci" / "run"], env=given, cwd=tmp_path, check=True)
    assert calls.read_text(encoding="utf-8").splitlines() == COMMANDS
    assert COMMANDS == ["make stateful", "make test"]
    for command in COMMANDS:
        seen = set(Path(f"{calls}.{command.split()[1]}").read_text(encoding="utf-8").split())
        assert seen - OF_THE_SHELL == set(given)


def test_the_makefile_sets_no_variable_that_chooses_tests() -> None:
    """Live tests are required; profile, seed and selection are those of a plain pytest."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"\bexport\s+(\w+)", text) == ["KVPROOF_REQUIRE_LIVE"]
    assert not re.findall(r"KVPROOF_PROFILE|KVPROOF_VLLM|PYTEST_ADDOPTS|--hypothesis-", text)
