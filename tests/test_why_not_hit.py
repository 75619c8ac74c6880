"""Each token that a request shares with earlier ones is in one row, and the reasons are right."""

from collections import Counter
from typing import Any

from msgspec.structs import force_setattr, replace

from kvproof.invariants.why_not_hit import Earlier, Lost, PromptLookup, Shared, evicted_by, rows
from kvproof.model.config import EngineConfig, Group
from kvproof.model.hit_rows import NOT_EXPLAINED, HitRow, sentence
from kvproof.reports.shared_tokens import lines, total


def cached_up_to(*ends: int) -> Any:
    """A cache in which each group has whole prefixes up to a length."""
    return lambda group, end: end <= ends[group]


def asked(
    groups: tuple[Group, ...],
    known: int,
    shared: Shared,
    hit: int = 0,
    cached: Any = lambda *_: True,
    lost: Any = lambda *_: None,
    **more: Any,
) -> list[tuple[str, int]]:
    """The labels and tokens of the rows of one request."""
    engine = EngineConfig("E", groups, **more)
    lookup = PromptLookup(known, shared, hit, 0, cached, lost)
    return [(row.label, row.tokens) for row in rows(engine, lookup) if row.tokens]


def alike(tokens: int) -> Shared:
    return Shared(tokens, tokens, tokens, tokens)


FULL = Group("full", 16)


def test_a_short_prompt_fills_no_wide_block() -> None:
    """vllm#54607: a prompt of 240 tokens, and blocks of 784."""
    wide = Group("full", 784), Group("mamba", 784)
    assert asked(wide, 300, alike(240)) == [
        ("not in group 0, as no block of 784 tokens was full", 240)
    ]


def test_the_group_with_the_widest_blocks_is_named() -> None:
    """vllm-ascend#16270: a unit of 4,096 tokens."""
    groups = Group("full", 4096), Group("window", 128, window=128)
    assert asked(groups, 5000, alike(4000), num_blocks=90) == [
        ("not in group 1, as no block of 128 tokens was full", 32),
        ("not in group 0, as no block of 4,096 tokens was full", 3968),
    ]


def test_sizes_that_do_not_divide_each_other_make_a_wide_unit() -> None:
    engine = EngineConfig("E", (Group("full", 4), Group("full", 4)))
    force_setattr(engine.groups[0], "block_size", 6)
    lookup = PromptLookup(30, alike(11), 0, 0, lambda *_: True, lambda *_: None)
    assert {row.label: row.tokens for row in rows(engine, lookup) if row.tokens} == {
        "not in group 1, as no block of 4 tokens was full": 3,
        "not in group 0, as no unit of 12 tokens, which blocks of 6 and of other groups divide, "
        "was full": 8,
    }


def test_an_evicted_block_ends_the_hit() -> None:
    """vllm#42948: a window of the other group takes the blocks."""
    groups = FULL, Group("window", 4, window=8)
    engine = EngineConfig("E", groups)
    found = asked(
        groups,
        100,
        alike(64),
        hit=16,
        cached=cached_up_to(32, 64),
        lost=lambda group, end: evicted_by(engine, 1) if not group and end > 32 else None,
    )
    assert found == [
        ("were hit", 16),
        ("not in group 0, as they were evicted (by whom: group 1, window, blocks of 4 tokens)", 32),
        ("not, and nothing explains it", 16),
    ]


def test_the_reasons_of_one_request_are_told_apart() -> None:
    shared = Shared(100, since_reset=90, computed=80, settled=80)
    groups = (Group("full", 16, eagle=True),)
    assert asked(groups, 200, shared, hit=32, drafts=1) == [
        ("were hit", 32),
        ("not, as the cache was reset since", 10),
        ("not, as they were not computed yet when the cache was looked up", 10),
        ("not, as a drafter needs the block after a hit to match too", 16),
        ("not, and nothing explains it", 32),
    ]


def test_a_lost_entry_without_a_reason_is_not_explained() -> None:
    found = asked((FULL,), 50, alike(48), cached=cached_up_to(0), lost=lambda *_: Lost(None))
    assert found == [("not in group 0, and nothing explains it", 48)]


def test_the_repeated_prompt_computes_its_last_block() -> None:
    assert asked((FULL,), 48, alike(48), hit=32)[1:] == [
        ("not, as the last token of a prompt is always computed, with the block it is in", 16)
    ]


def test_what_a_request_does_not_ask_for_has_one_reason() -> None:
    lookup = PromptLookup(48, alike(40), 0, 0, cached_up_to(48), lambda *_: None, reads=False)
    found = [row for row in rows(EngineConfig("E", (FULL,)), lookup) if row.tokens]
    assert found == [HitRow("choice", "their request asks for no hit", 40)]


def test_what_a_connector_loads_is_no_hit_of_the_engine() -> None:
    lookup = PromptLookup(48, alike(40), 16, 16, cached_up_to(16), lambda *_: None, "Store")
    found = {row.label: row.tokens for row in rows(EngineConfig("E", (FULL,)), lookup)}
    assert found["were hit"] == found["were loaded by Store"] == 16
    assert sum(found.values()) == 40


def test_the_last_output_of_an_earlier_request_is_a_reason_of_the_release() -> None:
    engine = EngineConfig("E", (Group("full", 4),), steps_in_flight=2)
    earlier = Earlier("abcdefgh")
    earlier.compute(engine, 8, 5)
    shared = Shared().more(earlier, 8)
    assert shared == Shared(8, 8, 8, 7)
    lookup = PromptLookup(12, shared, 4, 0, cached_up_to(4), lambda *_: None)
    assert [row.kind for row in rows(engine, lookup) if row.tokens] == ["hit", "release"]


def test_what_nothing_explains_is_told_first() -> None:
    told = Counter(
        row.label
        for row in (HitRow("hit"), HitRow("choice", "reason"), HitRow(NOT_EXPLAINED, group=1))
    )
    told["not, as reason"] = 9_000
    assert sentence(told) == (
        "of 9,002 prompt tokens that earlier requests share, 1 not in group 1, and nothing "
        "explains it; 1 were hit; 9,000 not, as reason"
    )
    assert not sentence({})
    many = {f"not, as reason {number}": 100 - number for number in range(20)}
    assert sentence(many).endswith("; 89 not, as reason 11; 676 not, for 8 more reasons")
    assert not lines(())


def test_rows_of_one_kind_are_one_row() -> None:
    one = HitRow("choice", "reason", 2, 1)
    assert total((one, HitRow("hit", "", 1), one, replace(one, group=0))) == (
        HitRow("hit", "", 1),
        HitRow("choice", "reason", 4, 1),
        HitRow("choice", "reason", 2, 0),
    )
