"""Campaigns: the same result with any number of workers, killed or interrupted; what is kept."""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kvproof.campaign import planned
from kvproof.campaign.behaviours import PAIR, STEP, hits
from kvproof.campaign.carry_out import carry_out
from kvproof.campaign.figures import unseen
from kvproof.campaign.folder import STATE, CampaignFolder
from kvproof.campaign.plan import PLANS_EVERY, Plan
from kvproof.campaign.planned import ENGINES
from kvproof.campaign.processes import TRIES_MAX, Processes
from kvproof.campaign.progress import Progress, SeenBehaviour
from kvproof.campaign.unit import CorpusEntry, Unit, packed, result_of, unit_of
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Engines, Episodes, Play, Plays
from kvproof.model.config import Cluster, Job
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.model.state import State
from kvproof.model.step import Admission, Effects, Step
from kvproof.model.traces.trace_reader import read
from tests.processes import python

FAULT = ("--fault", "untouched_hits")
UNITS = ("--units", "18")

RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install ray)"
)


def campaign(folder: Path, *more: str, code: str = "") -> tuple[int, dict[str, Any]]:
    """Run a campaign in a process of its own, after some code: its exit code and output."""
    program = ("-c", code + MAIN) if code else ("-m", "kvproof")
    done = python(*program, "campaign", "--json", "--out", str(folder), *more)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


MAIN = """
import signal, sys
from kvproof.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # `make test &` ignores it
sys.exit(main(sys.argv[1:]))
"""

KILLED = """
import signal
from kvproof.campaign import processes
from kvproof.campaign.folder import CampaignFolder
from kvproof.campaign.processes import Losses
give, note, lost = processes._Worker.give, CampaignFolder.note, Losses.result
killed, seen = [], []

def given(worker, number, unit):  # the first unit is given to a worker that is killed
    if not killed:
        killed.append(number)
        worker.process.kill()
        worker.process.join()
    give(worker, number, unit)

def counted(losses, number):
    seen.append(number)
    return lost(losses, number)

def noted(folder, result):  # the first result after that is kept, and the campaign interrupted
    note(folder, result)
    if seen:
        signal.raise_signal(signal.SIGINT)

processes._Worker.give, CampaignFolder.note, Losses.result = given, noted, counted
"""

INTERRUPTED = """
import signal
from kvproof.cli import campaign
write = campaign._trace

def interrupted(*args):
    signal.raise_signal(signal.SIGINT)
    return write(*args)

campaign._trace = interrupted
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a campaign with one worker."""
    folder = tmp_path_factory.mktemp("campaign") / "alone"
    code, output = campaign(folder, *FAULT, *UNITS, "--workers", "1")
    assert (code, output["verdict"]) == (1, "VIOLATED")
    return folder


def same(folder: Path, other: Path) -> None:
    """Both campaigns know the same, and have the same traces."""
    assert (folder / STATE).read_bytes() == (other / STATE).read_bytes()
    traces = {path.name: path.read_text() for path in (folder / "findings").iterdir()}
    assert traces == {path.name: path.read_text() for path in (other / "findings").iterdir()}
    assert traces


def test_a_killed_worker_and_an_interruption_lose_nothing(alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    code, interrupted = campaign(folder, *FAULT, *UNITS, "--workers", "2", code=KILLED)
    assert (code, interrupted["lost_workers"]) == (130, 1)
    assert interrupted["figures"]["units"] < 18
    assert (folder / "results.jsonl").exists()
    code, output = campaign(folder, *FAULT, *UNITS, "--workers", "2", "--resume")
    assert (code, output["lost_workers"]) == (1, 0)
    same(alone, folder)


def test_an_interruption_while_a_result_is_merged_saves_no_half_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    code, _ = campaign(folder, *FAULT, *UNITS, "--workers", "1", code=INTERRUPTED)
    assert code == 130
    progress = CampaignFolder(folder).state().progress
    assert len(progress.found) == len(progress.traces) > 0


def test_findings_are_one_by_signature_and_replay(alone: Path, run: Any) -> None:
    progress = CampaignFolder(alone).state().progress
    signatures = [each.signature for each in progress.found]
    assert len(set(signatures)) == len(signatures) == len(progress.traces)
    lengths = sorted(len(read(alone / each).events) for each in progress.traces)
    assert lengths[0] <= 8  # they were made shorter
    assert lengths[-1] <= 12
    path = alone / progress.traces[0]
    code, out, _ = run("replay", str(path))
    assert code == 1
    assert "reproduced" in out


def test_a_campaign_is_reported(alone: Path, run: Any, refused: Any) -> None:
    code, out, _ = run("report", str(alone))
    assert code == 0
    assert out.count("references_are_exact") == 1
    assert "nothing beside it" in refused("report", str(alone), str(alone))
    assert "no page for a browser" in refused("report", str(alone), "--html", "new.html")


def test_other_settings_are_refused(alone: Path, refused: Any, tmp_path: Path) -> None:
    out = ("campaign", "--out", str(alone))
    assert "seed" in refused(*out, *FAULT, "--resume", "--seed", "1")
    assert "not empty" in refused(*out, *FAULT)
    assert "cannot be read" in refused("campaign", "--out", str(tmp_path / "none"), "--resume")
    refused("campaign", "--out", str(tmp_path / "none"), "--from", str(tmp_path))


@pytest.mark.parametrize(
    ("version", "progress", "reads"),
    [
        ('"version":1', '"findings_at":[]', "the commit 9e32e107 of kvproof"),
        ('"vers":2', '"units":0', "the commit 9e32e107 of kvproof"),
        ('"version":3', '"what_is_new":[]', "a newer one"),
    ],
)
def test_a_campaign_of_another_version_says_what_reads_it(
    version: str, progress: str, reads: str, refused: Any, tmp_path: Path
) -> None:
    state = f'{{"progress":{{{progress}}},"settings":{{}},{version}}}'
    (tmp_path / STATE).write_text(state, encoding="utf-8")
    said = refused("report", str(tmp_path))
    assert "was written by another version of kvproof. Use a new folder, or " in said
    assert said.endswith(f" or {reads}, which reads it.\n")


def test_a_unit_of_a_dying_worker_is_given_out_again_and_then_given_up() -> None:
    def dies(_unit: bytes) -> bytes:
        os._exit(1)

    pool = Processes(1, dies)
    try:
        pool.give(7, b"")
        while (ended := pool.next(1.0)) is None:
            pass
    finally:
        pool.close()
    assert ended[0] == result_of(ended[1]).number == 7
    assert "ended" in result_of(ended[1]).error
    assert pool.losses.times == {7: TRIES_MAX}


def test_an_error_of_a_unit_is_no_green(tmp_path: Path, monkeypatch: Any, as_json: Any) -> None:
    def wrong(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kvproof.campaign.carry_out.behaviours", wrong)
    code, output = as_json("campaign", "--units", "1", "--workers", "1", "--out", str(tmp_path))
    assert (code, output["verdict"]) == (3, "UNKNOWN")
    assert "ZeroDivisionError" in output["reason"]


def cluster_of(unit: Unit) -> Cluster | None:
    """The cluster of random episodes; None where a unit has none."""
    return unit.work.cluster if isinstance(unit.work, Episodes) else None


def test_all_presets_come_at_first_and_one_unit_in_four_is_another_one() -> None:
    known = Progress()
    plan = Plan(0, live=False)
    units = [plan.unit(number, known) for number in range(len(plan.presets) * 4 // 3)]
    early = [cluster_of(each) for n, each in enumerate(units) if n % 4]
    assert early == [CLUSTERS[name] for name in plan.presets]


def test_every_second_unit_follows_an_earlier_campaign_until_all_has_come() -> None:
    """The rest are those of a campaign that begins with nothing."""
    given = [entry(*(Submit("E", "r0"),) * times) for times in range(1, 12)]
    known = Progress()
    units = [Plan(0, True, given).unit(number, known) for number in range(24)]
    follows = [unit for unit in units if isinstance(unit.work, tuple)]
    assert [unit.number for unit in follows] == [0, 2, 4, 6]
    assert sum(len(unit.work) for unit in follows if isinstance(unit.work, tuple)) == len(given)
    alone = [Plan(0, True).unit(number, known) for number in range(20)]
    others = [unit for unit in units if unit not in follows]
    assert list(map(cluster_of, others)) == list(map(cluster_of, alone))


def test_a_unit_depends_on_those_long_before_it_alone() -> None:
    plan, progress = Plan(3, live=False), Progress()
    first = carry_out(plan.unit(0, progress), ModelMachine)
    assert packed(carry_out(plan.unit(0, progress), ModelMachine)) == packed(first)
    before = plan.unit(5, progress)
    progress.merge(plan.unit(0, progress), first)
    assert progress.corpus
    assert plan.unit(5, progress) == before


def entry(*events: Any) -> CorpusEntry:
    cluster = CLUSTERS["full"].carrying(Job("r0", "abc"), Job("r1", "abb"))
    return CorpusEntry(cluster, events)


def test_what_is_not_possible_is_left_out() -> None:
    engine = CLUSTERS["full"].engines[0].name
    submit = Submit(engine, "r0")
    asked = entry(submit, submit, Schedule(engine))
    result = carry_out(Unit(0, (asked,)), ModelMachine)
    events = result.kept[0].entry.events
    assert events.count(submit) == 1
    assert [type(event) for event in events] == [Submit, Schedule, Complete]  # up to its end
    assert [job.name for job in result.kept[0].entry.cluster.jobs] == ["r0"]  # r1 did not arrive


def seen(*fresh: int) -> Progress:
    made = {f"{STEP} {n}": SeenBehaviour(fresh=each) for n, each in enumerate(fresh)}
    return Progress(fresh_units=10, seen=made)


@pytest.mark.parametrize(
    ("fresh", "left"), [((1, 1, 1, 2, 5), 0.9 * 9 / 2), ((1, 1, 0), 0.9), ((4, 5), 0)]
)
def test_the_estimate_by_hand(fresh: Sequence[int], left: float) -> None:
    estimate = unseen(seen(*fresh), STEP)
    assert estimate.unseen_at_least == pytest.approx(left, abs=0.051)
    assert estimate.in_next_unit == fresh.count(1) / 10
    assert estimate.by_followed_runs == fresh.count(0)
    assert unseen(seen(*fresh), PAIR).seen == 0


@RAY
@pytest.mark.nightly
def test_a_killed_node_of_ray_loses_nothing(alone: Path, tmp_path: Path) -> None:
    """Three nodes, one of which is killed while it works."""
    code = (
        "import os, signal, subprocess, sys, time\n"
        "from ray.cluster_utils import Cluster\n"
        "made = Cluster(initialize_head=True, head_node_args={'num_cpus': 1})\n"
        "other = made.add_node(num_cpus=2)\n"
        "run = subprocess.Popen([*sys.argv[1:], '--ray', made.address])\n"
        "results = os.path.join(sys.argv[6], 'results.jsonl')\n"
        "while not os.path.exists(results) or not os.path.getsize(results):\n"
        "    time.sleep(0.05)\n"
        "made.remove_node(other, allow_graceful=False)\n"
        "sys.exit(run.wait())\n"
    )
    folder = tmp_path / "ray"
    command = ("-m", "kvproof", "campaign", "--out", str(folder), "--json", *FAULT, *UNITS)
    done = python("-c", code, sys.executable, *command)
    assert done.returncode == 1, done.stderr
    output = json.loads(done.stdout)
    assert output["workers"] == 3
    assert output["lost_workers"] >= 1
    same(alone, folder)


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is not None, reason="Ray is installed, so nothing is missing"
)
def test_ray_that_is_missing_is_a_usage_error(refused: Any, tmp_path: Path) -> None:
    assert "pip install" in refused("campaign", "--out", str(tmp_path / "new"), "--ray")


# Which hits are new


EMPTY = State(())


def admitted(request: str, tokens: str, hit: int) -> Step:
    """A step that admits one request."""
    admission = Admission("E", request, tokens, "local", hit, 0, ())
    return Step(EMPTY, Schedule("E"), Effects(admissions=(admission,)), EMPTY)


SECOND = "none: a beginning hits the second time"
LATER = "none: a beginning hits the third or a later time"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([("r0", "aabb", 0), ("r1", "aabb", 2)], ["none: a prompt hits the second time"]),
        ([("r0", "aabb", 0), ("r0", "aabb", 2)], []),
        ([("r0", "aabb", 0), ("r1", "aacc", 2), ("r2", "aaee", 2)], [SECOND]),
        (
            [("r0", "aabb", 0), ("r1", "aacc", 0), ("r2", "aaee", 2)],
            [LATER],
        ),
    ],
)
def test_by_hand(steps: Sequence[tuple[str, str, int]], words: Sequence[str]) -> None:
    assert list(hits(CLUSTERS["full"], [admitted(*each) for each in steps])) == words


def test_features_that_decide_what_is_stored_are_named() -> None:
    run = [admitted("r0", "aabb", 0), admitted("r1", "aabb", 2)]
    found = list(hits(LIVE_CLUSTERS["partial-eagle"], run))
    features = ("drafts", "eagle", "partial_block_hits")
    assert found == [f"{feature}: a prompt hits the second time" for feature in features]


# Units of random plans


OURS, WRONG = "ours", "tests.connectors.mistakes:PairsFromTheFront"
PLANS = Plays(OURS, OURS, seed=0, episodes=30)
RULE = "promised_tokens_are_loaded"


def test_one_unit_in_some_has_plans_of_each_subject_in_turn() -> None:
    plan = Plan(0, live=True)
    empty = Progress()
    others = PLANS_EVERY * len(plan.planned)
    units = [plan.unit(number, empty) for number in range(len(plan.presets) + others)]
    of_plans = [unit for unit in units if isinstance(unit.work, Plays | Engines)]
    assert sorted(unit.work.name for unit in of_plans) == sorted(plan.planned)
    assert {ENGINES, "offloading", "nixl-pull"} < {*plan.planned}
    assert "decode-bench" not in plan.planned  # wrong on purpose
    assert [unit_of(packed(unit)) for unit in of_plans] == of_plans
    of_model = (Plan(0, live=False).unit(number, Progress()) for number in range(2 * PLANS_EVERY))
    assert not any(isinstance(unit.work, Plays | Engines) for unit in of_model)


def ship_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that pairs blocks from the front on a partial hit is a connector of vLLM."""
    from kvproof.live.connectors.shipped import SHIPPED, Shipped
    from kvproof.live.connectors.subject import TestedConnector

    monkeypatch.setitem(SHIPPED, OURS, Shipped(TestedConnector(WRONG), (OURS,)))


@pytest.fixture(scope="module")
def driven_once() -> Result:
    """What the plans show."""
    with pytest.MonkeyPatch.context() as shipped:
        ship_ours(shipped)
        return planned.driven(PLANS)


@pytest.fixture
def _ours(monkeypatch: pytest.MonkeyPatch, driven_once: Result) -> None:
    """What our store breaks needs no earlier plan, and its plans are driven once for all tests."""
    ship_ours(monkeypatch)
    driven = planned.driven

    def known(plans: Any, **more: Any) -> Result:
        return driven_once if plans == PLANS else driven(plans, **more)

    monkeypatch.setattr(planned, "driven", known)
    monkeypatch.setattr(planned, "_breaks_alone", lambda _: True)


@pytest.mark.live
@pytest.mark.parametrize("name", ["offloading", ENGINES])
def test_a_unit_depends_on_itself_alone(name: str) -> None:
    plan = Plan(0, live=True)
    unit = Unit(7, plan.plans(plan.planned.index(name), 11))
    result = planned.carry_out_plans(unit)
    assert result.shown
    assert result.steps >= result.runs > 0
    assert not result.error
    assert packed(planned.carry_out_plans(unit)) == packed(result)
    progress = Progress()
    progress.merge(unit, result)
    assert progress.plan_units == 1
    assert progress.different["plan"] == len(result.shown)
    assert not progress.fresh_units


@pytest.mark.live
@pytest.mark.usefixtures("_ours")
def test_a_finding_is_made_shorter_and_written(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.gate.side.plans import written

    with monkeypatch.context() as drawn:
        drawn.setattr(planned, "SHRINKING_PLANS_MAX", 0)
        found = planned.carry_out_plans(Unit(0, PLANS)).found
    [long] = [each for each in found if each.signature.check == RULE]
    others = tuple(each.signature for each in found if each is not long)
    [first] = planned.carry_out_plans(Unit(0, PLANS, others)).found
    assert first.signature.feature.startswith(OURS)
    assert first.length < long.length
    assert isinstance(first.entry, Play)
    path = written(first.entry, first.found.finding, RULE, tmp_path)
    code, out, _ = run("replay", str(path))
    assert code == 1
    assert RULE in out
    known = Unit(0, PLANS, tuple(each.signature for each in found))
    assert not planned.carry_out_plans(known).found


@pytest.mark.live
@pytest.mark.usefixtures("_ours")
def test_a_finding_that_needs_earlier_plans_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_breaks_alone", lambda _: False)
    monkeypatch.setattr(planned, "SHRINKING_PLANS_MAX", 0)
    found = planned.carry_out_plans(Unit(0, PLANS)).found
    assert found
    assert all(planned.NEEDS_EARLIER in each.signature.words for each in found)


@pytest.mark.live
@pytest.mark.usefixtures("_ours")
def test_a_finding_whose_plan_is_kept_is_known_and_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvproof.gate.side import known_plans
    from kvproof.gate.side.known_plans import KnownPlan

    monkeypatch.setattr(planned, "SHRINKING_PLANS_MAX", 0)
    unit = Unit(0, PLANS)
    before = planned.carry_out_plans(unit)
    [first] = [each for each in before.found if each.signature.check == RULE]
    assert isinstance(first.entry, Play)
    kept = {"pairs_from_the_front": [KnownPlan(RULE, first.entry, needs=("local_hits",))]}
    monkeypatch.setattr(known_plans, "_all", lambda: kept)
    after = planned.carry_out_plans(unit)
    assert after.met["pairs_from_the_front"]
    signatures = {each.signature for each in after.found}
    like = {each for each in signatures if "looks like pairs_from_the_front" in each.feature}
    assert signatures - like < {each.signature for each in before.found}
    assert first.signature not in signatures
    kept["pairs_from_the_front"] = [KnownPlan("every_request_ends", first.entry)]
    assert planned.carry_out_plans(unit).found == before.found
