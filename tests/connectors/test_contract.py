"""The contract of a connector: stores that keep it, and planted mistakes that the kit names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from kvproof.gate.connectors.search import PlanSearch, RuleBroken, search
from kvproof.gate.connectors.shown import shown
from kvproof.gate.side import connector_plans
from kvproof.invariants.check import Tally
from kvproof.invariants.stores import NOT_OFFERED
from kvproof.live import build
from kvproof.live.adapt import CONFIG
from kvproof.live.connectors import accepted as accepted_module
from kvproof.live.connectors.accepted import accepted
from kvproof.live.connectors.earlier import EarlierLoads
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.judging import CONTRACT, broken
from kvproof.live.connectors.layouts import layouts
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.store import Storeless
from kvproof.model.config import Group
from kvproof.model.errors import AdapterDrift, NotValid
from kvproof.model.facts.connectors import (
    Alike,
    Announced,
    AskedAfterReset,
    CacheStatistics,
    Copied,
    CopiedBytes,
    EngineGone,
    Fact,
    Holder,
    ItemEncoded,
    ItemRead,
    ItemReadAhead,
    ItemsHeld,
    ItemsOwed,
    LoadedSlot,
    LoadEnded,
    LoadFailed,
    LookedUp,
    Matched,
    MayFail,
    Past,
    Promised,
    PromptReported,
    Remembered,
    RequestsGone,
    ResetAnswered,
    Since,
    Slot,
    SlotsRead,
    Stored,
    StoreReset,
    TierLoads,
    TierNotified,
    TokensLookedUp,
    Waits,
    Written,
    WrittenSlot,
)
from kvproof.model.plans.connector import ConnectorPlan, RunSteps, SubmitRequest, bare
from kvproof.model.severity import FAIL_ON
from tests.connectors.mistakes import RULE_OF
from tests.connectors.played import explained
from tests.connectors.test_mistakes_of_vllm import PLANTED

EPISODES = 250
SEEDS = (1, 2, 3)
TOLERATED_EPISODES = 40
"""A finding that is less than a leak ends no search."""


def is_tolerated(subject: TestedConnector, rule: str, seed: int) -> bool:
    """Whether random plans break a rule that ends no search; none is played after the first."""
    found = PlanSearch()

    def look(*_: int) -> None:
        if found.tolerated[rule]:
            raise RuleBroken

    how = {"shrinks": False, "found": found, "progress": look, "known": explained(subject)}
    search(subject, TOLERATED_EPISODES, seed, **how)
    return bool(found.tolerated[rule])


@pytest.mark.parametrize("mistake", RULE_OF)
def test_a_planted_mistake_is_named(mistake: str) -> None:
    subject = TestedConnector(f"tests.connectors.mistakes:{mistake}", {}, keeps_prompts=True)
    rule, known = CONTRACT[RULE_OF[mistake]], explained(subject)
    grave = rule.severity <= FAIL_ON
    if not grave:
        assert any(is_tolerated(subject, rule.id, seed) for seed in SEEDS)
        return
    # What was written to a wrong place may be read before the place is looked at.
    found = (search(subject, EPISODES, seed, shrinks=False, known=known) for seed in SEEDS)
    assert any(rule.id in {b.signature.check for b in each.breaks} for each in found)


def test_each_rule_has_a_mistake() -> None:
    mistaken = {*RULE_OF.values(), *(each.finds for each in PLANTED.values())}
    # By facts alone, and by vLLM's scheduler: tests/test_stored_loops.py.
    of_facts = {"recomputed_prompt_is_not_loaded", *(each.rule for each in OF_RULES)}
    ideals = {check.id for check in CONTRACT.values() if check.ideal}
    # Its breaks have an excuse: `test_a_drafter_reads_one_token_ahead_of_a_step`.
    of_facts |= {"idle_engine_has_published", "drafter_has_what_it_reads"}
    assert mistaken | of_facts | ideals == set(CONTRACT)


def test_a_load_of_a_prompt_that_must_be_computed_is_named() -> None:
    load = Promised("r0", 0, 8, later=False, computes_all=True)
    assert [f.invariant for f in broken([load], Past())] == ["recomputed_prompt_is_not_loaded"]
    assert not list(broken([load._replace(computes_all=False)], Past()))


def test_a_load_may_fail_only_where_something_was_lost_during_it() -> None:
    load, failed = Promised("r0", 0, 8, later=True), LoadEnded("r0", failed=True)
    assert [f.invariant for f in broken([load, failed], Past())] == ["loads_do_not_fail"]
    assert [f.invariant for f in broken([StoreReset(), load, failed], Past())] != []
    for lost in (StoreReset(), MayFail()):
        tally = Tally()
        assert not list(broken([load, lost, failed], Past(), tally))
        assert tally.excused == {"loads_do_not_fail": 1}


@pytest.mark.parametrize(("copies", "why"), [(2, "no_copy"), (0, "beside_load")])
def test_a_request_that_lacks_room_for_a_copy_says_so_beside_a_load(copies: int, why: str) -> None:
    load = Promised("r1", 0, 8, later=True)
    waits = Waits("r0", "WAITING", 9, needs=1, copies=copies, free=1, others=("r1",))
    [found] = broken([load, waits], Past())
    assert [each.kind for each in found.reasons] == ["waits", why]


def test_a_shorter_offer_has_the_fewest_excuses_that_some_earlier_prompt_leaves() -> None:
    def found(*alike: Alike, tokens: int = 4) -> list[tuple[str, ...]]:
        tally = Tally()
        [*violations] = broken([LookedUp("r0", tokens, alike)], Past(), tally)
        return [tuple(each.says for each in f.excuses) for f in (*violations, *tally.kept)]

    running, kept = Alike(12, ("runs", "window")), Alike(8, ())
    assert found(running) == [(NOT_OFFERED["runs"].says, NOT_OFFERED["window"].says)]
    assert found(running, kept) == [()]
    assert found(kept, tokens=8) == []
    assert {*NOT_OFFERED} == {*get_args(Since)}


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        (AskedAfterReset("r0", 8, 8, 4, idle=True, done=True, steps=False), [()]),
        (AskedAfterReset("r0", 8, 8, 8, idle=True, done=True, steps=True), []),
        (AskedAfterReset("r0", 8, 8, 4, idle=True, done=True, steps=True), [("release",)]),
        (AskedAfterReset("r0", 8, 8, 0, idle=False, done=True, steps=False), [("choice",)]),
        (AskedAfterReset("r0", 8, 8, 0, idle=True, done=False, steps=False), [("release",)]),
        (AskedAfterReset("r0", 0, 4, 0, idle=True, done=True, steps=False), []),
    ],
)
def test_what_is_offered_after_a_reset_was_computed_since(
    asked: AskedAfterReset, kinds: list[tuple[str, ...]]
) -> None:
    tally = Tally()
    violations = list(broken([asked], Past(), tally))
    assert [tuple(e.kind for e in f.excuses) for f in (*violations, *tally.kept)] == kinds


BYTES = CopiedBytes(64, 32)
SENDS = Remembered("Worker.sends", "r0", 9)
GONE = RequestsGone(1, (SENDS,), lasts=3)
ASKED = ResetAnswered(False, connector=True, idle=True, requests=0, taken=0)


@pytest.mark.parametrize(
    ("fact", "excused"),
    [
        (Announced(2, 0, 0, 4, groups=2), {"events_name_their_tokens"}),
        (Announced(2, 0, 0, None, 2), {"events_name_their_tokens", "events_name_their_group"}),
        (Announced(2, 8, 4, 4, again=1), {"stored_blocks_are_announced_once"}),
        (Announced(2, 8, 4, 4, 1, 1, soon=True), {"stored_blocks_are_announced_once"}),
        (Copied(2, again=(BYTES,), by_block=False), {"copies_are_made_once"}),
        (Copied(2, again=(BYTES,), parts=True), {"copies_are_made_once"}),
        (Copied(2, again=(BYTES._replace(reset=True),)), {"copies_are_made_once"}),
        (TierNotified("r0", "CPU", False, of_starts=False), {"tier_is_notified_of_the_request"}),
        (EngineGone(60, 60, True, ("Worker.agents",)), {"gone_engines_are_forgotten"}),
        (EngineGone(61, 60, False, ("Worker.agents",)), {"gone_engines_are_forgotten"}),
        (GONE._replace(lasts=9), {"gone_requests_are_forgotten"}),
        (GONE._replace(stand=True), {"gone_requests_are_forgotten"}),
        (
            GONE._replace(remembered=(SENDS._replace(sent=True),)),
            {"gone_requests_are_forgotten"},
        ),
        (ASKED._replace(cannot=True), {"reset_is_answered"}),
        (CacheStatistics("engine's", 3, 2, failed=1), {"statistics_count_once"}),
        (TokensLookedUp("engine's", (9, 4), (9, 6), unlike=True), {"statistics_count_tokens"}),
        (
            PromptReported("r0", 9, 4, 0, 5, ((4, 0),), cached=0, whole=8, other=True),
            {"reported_tokens_are_cached"},
        ),
        (Promised("r0", 0, 8, True, under_way=4), {"tokens_are_loaded_once"}),
        (Promised("r0", 0, 8, True, before=8), {"tokens_are_loaded_once"}),
        (Promised("r0", 0, 8, True), set()),
        (Stored(3, again=1), {"keys_are_stored_once"}),
        (TierLoads(3, again=1), {"tiers_are_asked_once"}),
        (TierLoads(3, again=0), set()),
        (Stored(3, again=0), set()),
        (ItemRead("r0", "α3", 4, True, True, True, cut=True), {"images_are_not_cut"}),
        (ItemReadAhead("r0", "α3", 4, there=False), {"drafter_has_what_it_reads"}),
        (ItemReadAhead("r0", "α3", 4, there=True), set()),
        (ItemEncoded("r0", "α3", again=True, held=False), {"image_is_encoded_once"}),
        (ItemEncoded("r0", "α3", again=False, held=False), set()),
    ],
)
def test_what_a_connector_may_do_is_excused(fact: Fact, excused: set[str]) -> None:
    tally = Tally()
    assert not list(broken([fact], Past(), tally))
    assert {each.invariant for each in tally.kept} == excused


def test_a_load_is_compared_with_the_loads_before_it() -> None:
    loads = EarlierLoads()
    assert loads.begin("r0", "", "abcdef", 0, 4, ()) == (0, 0)
    assert loads.begin("r1", "", "abcxyz", 2, 6, ("r0",)) == (1, 0)
    assert loads.begin("r2", "salt", "abcdef", 0, 4, ("r0", "r1")) == (0, 0)
    assert loads.begin("r0", "", "abcdef", 0, 4, ("r1",)) == (1, 4)
    loads.fail("r1")
    assert loads.begin("r3", "", "abcxyz", 2, 6, ()) == (0, 1)


def test_what_is_right_is_judged_too() -> None:
    """So a check that had nothing to judge is told from one that holds."""

    def judged(*facts: Fact) -> set[str]:
        tally = Tally()
        assert not list(broken(facts, Past(), tally))
        return {*+tally.judged}

    load = Promised("r0", 0, 8, later=True)
    assert judged() == set()
    assert judged(load) == {"loads_do_not_fail", "tokens_are_loaded_once"}
    assert "reports_are_of_known_transfers" in judged(load, LoadEnded("r0"))
    assert "failed_blocks_are_of_loads" in judged(MayFail(), load, LoadFailed((3,), (3, 4)))
    assert judged(Matched("r0", 0, None, False, 9)) == {"matched_tokens_can_be_loaded"}
    asked = Matched("r0", 0, 0, False, 9, computes_all=True)
    assert "recomputed_prompt_is_not_loaded" in judged(asked)
    assert judged(Announced(1, 4, 4, None, groups=1)) == {
        "events_carry_whole_blocks",
        "events_name_their_tokens",
        "stored_blocks_are_announced_once",
    }
    assert "events_name_their_group" in judged(Announced(1, 4, 4, 4, groups=2))
    assert judged(CacheStatistics("engine's", 2, 2)) == {"statistics_count_once"}
    assert "request_reads_its_own_tokens" in judged(SlotsRead(7, ()))


class OfRule(NamedTuple):
    """A rule that facts break in several ways, or that no mistake of a connector breaks, with these
    facts, and with one of which it judges that nothing is wrong."""

    rule: str
    broken: tuple[Fact, ...]
    kept: Fact


RIGHT = LoadedSlot(Slot("layers.0.attn", 0, 3, 1), 5, "abcdef", "abcdef")
WRITTEN = WrittenSlot(RIGHT.slot, True, None, "abcdef", ())
LOADS = Holder("r0", 5, "abcdef", Promised("r0", 4, 4, later=False))
READ = ItemRead("r0", "α3", 4, there=True, right=True, kept=True)


def written(held: str | None, *holders: Holder) -> Written:
    """The connector wrote the slot of token 5."""
    return Written((WRITTEN._replace(held=held, holders=holders),))


OF_RULES = (
    OfRule("images_are_not_cut", (READ._replace(cut=True, may_cut=False),), READ),
    OfRule(
        "encoder_output_is_there",
        (READ._replace(there=False, right=False), READ._replace(kept=False)),
        READ,
    ),
    OfRule(
        "encoder_room_adds_up",
        (ItemsHeld(6, 5), ItemsOwed(5, 3, 0), ItemsOwed(3, 3, 3)),
        ItemsOwed(3, 3, 0),
    ),
    OfRule(
        "statistics_count_once",
        (CacheStatistics("engine's", 3, 2), CacheStatistics("engine's", 4, 2, failed=1)),
        CacheStatistics("engine's", 2, 2),
    ),
    OfRule(
        "prompt_statistics_add_up",
        (
            PromptReported("r0", 9, 4, 4, 1, admitted=((4, 0), (0, 8))),
            PromptReported("r0", 9, 4, 0, 9, admitted=((4, 0),)),
        ),
        PromptReported("r0", 9, 4, 4, 1, admitted=((4, 4),)),
    ),
    OfRule(
        "statistics_count_tokens",
        (
            TokensLookedUp("connector's", (9, 4), (5, 4)),
            TokensLookedUp("engine's", (9, 0), (9, 4)),
        ),
        TokensLookedUp("engine's", (9, 4), (9, 4)),
    ),
    OfRule(
        "reported_tokens_are_cached",
        (
            PromptReported("r0", 9, 4, 0, 5, ((4, 0),), cached=0, whole=8),
            PromptReported("r0", 9, 4, 0, 5, ((4, 0),), cached=8, whole=8),
        ),
        PromptReported("r0", 9, 4, 0, 5, ((4, 0),), cached=4, whole=8),
    ),
    OfRule(
        "tier_is_notified_of_the_request",
        (TierNotified("r0", "CPUTier", begun=False, of_starts=True),),
        TierNotified("r0", "CPUTier", begun=True, of_starts=True),
    ),
    OfRule(
        "events_name_their_group",
        (Announced(1, 4, 4, None, groups=2),),
        Announced(1, 4, 4, 4, groups=2),
    ),
    OfRule(
        "load_stays_in_its_blocks",
        (
            written(None),
            written(None, LOADS._replace(load=None)),
            written("abcdef", LOADS._replace(load=Promised("r0", 0, 4, later=False))),
            written("abcdef", LOADS._replace(load=Promised("r0", 8, 4, later=True))),
        ),
        written(None, LOADS._replace(load=Promised("r0", 0, 4, later=False))),
    ),
    OfRule("load_stays_in_its_blocks", (written("ab"),), written("abcdef", LOADS)),
)


@pytest.mark.parametrize("each", OF_RULES, ids=lambda each: each.rule)
def test_a_fact_says_what_is_right_and_what_is_wrong(each: OfRule) -> None:
    for fact in each.broken:
        assert [f.invariant for f in broken([fact], Past())] == [each.rule]
    tally = Tally()
    assert not list(broken([each.kept], Past(), tally))
    assert tally.judged[each.rule]
    assert not tally.excused[each.rule]


PLAIN = TestedConnector("SimpleCPUOffloadConnector", {"cpu_bytes_to_use": 2**12})

ONE_GROUP = layouts(several=False)[0]


def test_cache_groups_with_which_a_connector_cannot_be_made_are_left_out() -> None:
    found = PlanSearch()
    whole = accepted(PLAIN, found)
    assert not found.refused
    none = bare(Group("window", 4, window=5))
    only = accepted(PLAIN, found, (*whole, none))
    assert only == whole
    assert list(found.refused) == ["window of 5 (blocks of 4)"]


def test_cache_groups_that_this_vllm_cannot_have_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def drifted(_subject: TestedConnector, plan: ConnectorPlan) -> None:
        if plan.engine.match_unit:
            raise AdapterDrift("Hits of this vLLM end with blocks", "a.b")

    monkeypatch.setattr(accepted_module, "play", drifted)
    found = PlanSearch()
    inside = bare(Group("full", 4), Group("mamba", 4), match_unit=2)
    assert accepted(PLAIN, found, (ONE_GROUP, inside)) == [ONE_GROUP]
    named = [line for line in shown(PLAIN, found) if "Not driven" in line]
    assert named == [
        f"Not driven with the cache groups {inside.words}. Hits of this vLLM end with blocks."
    ]


PLANNING = "vllm.v1.core.kv_cache_utils.get_kv_cache_groups"

APART = bare(Group("full", 4), Group("window", 4, window=8, eagle=True))
"""Cache groups of which one alone has layers of the drafter."""


def refusing_to_plan(error: BaseException) -> Callable[..., Any]:
    def refuses(*_: object) -> None:
        raise error

    return refuses


def test_a_pair_is_driven_with_the_drafter_in_all_groups_and_in_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start-up marks the one of an MTP drafter, and none for an EAGLE head (vllm#42289)."""
    monkeypatch.setattr(accepted_module, "play", lambda *_: None)
    [planned] = accepted(PLAIN, PlanSearch(), (APART,))
    assert not planned.engine.drafter_is_apart
    assert planned.drafts_of_layers
    driven = connector_plans.accepts("simple-cpu").plans
    assert {planned, APART} <= {*driven}


def test_planned_groups_that_are_not_driven_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = NotValid("Engine E has such groups. Use others.")
    monkeypatch.setattr(accepted_module.build, "as_planned", refusing_to_plan(refused))
    found = PlanSearch()
    assert accepted(PLAIN, found, (ONE_GROUP, APART)) == [ONE_GROUP]
    [named] = [line for line in shown(PLAIN, found) if "Not driven" in line]
    assert named.endswith("(Engine E has such groups).")


@pytest.mark.parametrize("error", [AssertionError(), ValueError("no"), NotImplementedError()])
def test_groups_that_the_planning_refuses_stay_as_they_are(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PLANNING, refusing_to_plan(error))
    assert build.as_planned(APART.engine) == APART.engine


@pytest.mark.parametrize("error", [AttributeError("no such name"), TypeError("one more argument")])
def test_a_planning_that_the_kit_does_not_fit_is_drift(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PLANNING, refusing_to_plan(error))
    with pytest.raises(AdapterDrift, match=str(error)):
        build.as_planned(APART.engine)


def test_cache_groups_that_the_config_refuses_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older releases refuse several groups beside KV events. One that refuses all is not driven."""

    def refused(_subject: TestedConnector, plan: ConnectorPlan) -> None:
        if len(plan.engine.groups) >= few:
            raise AdapterDrift("This vLLM refuses several groups", CONFIG)

    monkeypatch.setattr(accepted_module, "play", refused)
    several = bare(Group("full", 4), Group("mamba", 4))
    found, few = PlanSearch(), 2
    assert accepted(PLAIN, found, (ONE_GROUP, several)) == [ONE_GROUP]
    assert [*found.lacking] == [several]
    few = 1
    with pytest.raises(AdapterDrift, match="several groups"):
        accepted(PLAIN, PlanSearch(), (ONE_GROUP, several))


class LosesAFile(Storeless):
    """It opens a file of its folder that nobody has written."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """A step of the engine."""
        folder = self._vllm_config.kv_transfer_config.kv_connector_extra_config["folder"]
        (Path(folder) / "lost").read_bytes()
        return super().build_connector_meta(scheduler_output)


def test_a_finding_does_not_name_the_folder_of_its_episode() -> None:
    subject = TestedConnector(f"{__name__}:{LosesAFile.__name__}", {"folder": "{tmp}"})
    plan = msgspec.structs.replace(ONE_GROUP, actions=(SubmitRequest(0, 5), RunSteps(1)))
    [first, again] = [play(subject, plan).findings[0] for _ in range(2)]
    assert first.invariant == "engine_survives"
    assert "{tmp}/lost" in first.sentence
    assert first == again
