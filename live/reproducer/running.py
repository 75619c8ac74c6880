"""The work for a reproducer in a process that has imported a vLLM: it observes the statements, and
runs the finished file with pytest. Each runs in a fork of that process (see `cli/gate_side.py`), so
no file waits for another import of vLLM."""

import contextlib
import importlib.util
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from kvproof.live.contract.lookup import last_line
from kvproof.live.reproducer.choosing import Observed

Outcome = Literal["fails", "passes", "cannot run"]

OPTIONS = ("--noconftest", "-q", "-p", "no:cacheprovider", "-c", os.devnull)


class RanFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a reproducer, and the last line of its output."""

    outcome: Outcome
    why: str = ""


def observed(file: Path) -> Observed:
    """The values that the `observe` function of a file reads after each statement."""
    seen: list[dict[str, Any]] = []
    try:
        observe = _loaded(file).observe
    except Exception as error:
        return Observed(error=f"the statements do not run ({last_line(error)})")
    raised = ""
    try:
        observe(file.parent, lambda **engines: seen.append(json.loads(json.dumps(engines))))
    except Exception as error:
        raised = last_line(error)
    return Observed(tuple(seen), raised)


def _loaded(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # vLLM imports a store by the name of its module
    spec.loader.exec_module(module)
    return module


def tested(file: Path) -> RanFile:
    """Run a file with one test."""
    import pytest

    reports: list[Any] = []

    class Keeps:
        """Keeps what pytest reports."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            reports.append(report)

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        pytest.main([*OPTIONS, "--rootdir", str(file.parent), str(file)], plugins=[Keeps()])
    of_test = [each for each in reports if each.when == "call"]
    if of_test and all(each.passed for each in reports):
        return RanFile("passes")
    lines = said.getvalue().strip().splitlines() or ["it says nothing"]
    return RanFile("fails" if of_test and of_test[0].failed else "cannot run", lines[-1][:200])
