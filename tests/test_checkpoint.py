"""A search that was stopped anywhere goes on to the same verdict and the same states."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model.errors import UsageError
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer import checkpoint
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.running import Checkpoint
from kvproof.strategies.explorer.saved_graph import SavedGraph, saved
from kvproof.strategies.verdict import Outcome, Verdict
from tests import signals
from tests.planted import under

pytestmark = pytest.mark.exhaustive

ALL = list(CHECKS.values())
NAME = "pd-failing"
COUNTED = ("states_distinct", "states_generated", "depth", "events", "events_new", "goals")


def counts_of(outcome: Outcome) -> dict[str, object]:
    return {name: outcome.coverage[name] for name in (*COUNTED, "margins")}


def about(name: str = NAME, faults=()):
    return under(
        faults,
        checkpoint.scope,
        CLUSTERS[name],
        [i.id for i in (*ALL, *conformance_checks())],
    )


@pytest.mark.parametrize("after", [1, 7, 100, 353])
def test_resumed_after_so_many_states(after: int, tmp_path: Path) -> None:
    search = PackedSearch(CLUSTERS[NAME], ALL)
    for _ in range(after):
        search.expand()
    path = tmp_path / "c"
    checkpoint.save(path, about(), saved(search.reached))
    whole = explore(CLUSTERS[NAME])
    resumed = explore(CLUSTERS[NAME], kept=Checkpoint(path, resume=True))
    assert resumed.verdict is whole.verdict is Verdict.EXHAUSTED
    assert counts_of(resumed) == counts_of(whole)


@pytest.mark.parametrize("states", [5, 60, 110])
def test_a_violation_is_found_after_the_break_as_before(states: int, tmp_path: Path) -> None:
    fault = FAULTS["full_hit_gives_up_load"]
    cluster, faults = CLUSTERS[fault.cluster], [fault]
    cut = under(faults, explore, cluster, states_max=states, kept=Checkpoint(tmp_path / "c"))
    whole = under(faults, explore, cluster)
    again = under(faults, explore, cluster, kept=Checkpoint(tmp_path / "c", resume=True))
    assert cut.verdict is (Verdict.UNKNOWN if states < 96 else Verdict.VIOLATED)
    assert (again.finding, again.events) == (whole.finding, whole.events)
    assert counts_of(again) == counts_of(whole)


def test_a_finished_search_resumes_to_its_verdict(tmp_path: Path) -> None:
    first = explore(CLUSTERS[NAME], kept=Checkpoint(tmp_path / "c"))
    again = explore(CLUSTERS[NAME], kept=Checkpoint(tmp_path / "c", resume=True))
    assert counts_of(first) == counts_of(again)
    assert again.verdict is Verdict.EXHAUSTED


SLOW = """
import sys
from pathlib import Path
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.packed import PackedSearch
from kvproof.strategies.explorer.running import Checkpoint
PackedSearch.look_states = 1
explore(CLUSTERS["pd-failing"], kept=Checkpoint(Path(sys.argv[1]), every_s=0))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("states", [1, 150])
def test_stopped_from_outside(how: signal.Signals, states: int, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(path)],
        env=dict(os.environ),
        preexec_fn=signals.as_in_a_terminal,
    ) as process:
        while process.poll() is None:
            if path.exists() and checkpoint.load(path, about(), SavedGraph).expanded >= states:
                process.send_signal(how)
                break
            time.sleep(0.005)
        process.wait()
    resumed = explore(CLUSTERS[NAME], kept=Checkpoint(path, resume=True))
    assert resumed.verdict is Verdict.EXHAUSTED
    assert counts_of(resumed) == counts_of(explore(CLUSTERS[NAME]))


def test_a_limit_of_memory_cuts_and_keeps(tmp_path: Path) -> None:
    path = tmp_path / "c"
    cut = explore(CLUSTERS["pd-default"], memory_mib=1, kept=Checkpoint(path))
    assert cut.verdict is Verdict.UNKNOWN
    assert cut.reason == "the search was cut at 1 MiB"
    assert path.exists()


@pytest.mark.parametrize(("name", "faults"), [("pd", ()), (NAME, [FAULTS["front_trim"]])])
def test_a_checkpoint_of_another_search_is_refused(name: str, faults, tmp_path: Path) -> None:
    explore(CLUSTERS[NAME], kept=Checkpoint(tmp_path / "c"))
    with pytest.raises(UsageError, match="of another search"):
        under(faults, explore, CLUSTERS[name], kept=Checkpoint(tmp_path / "c", resume=True))


def test_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        explore(CLUSTERS[NAME], kept=Checkpoint(tmp_path / "none", resume=True))
