"""What a step caches of a request, and what it lets go of."""

from kvproof.model.config import Group
from kvproof.model.kv_events import Stored
from kvproof.model.reference.blocks import caching
from kvproof.model.state import Death, Engine, Request
from tests.by_hand import EAGLE, FULL, config, request, serving

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)


def running(*tables: tuple[int, ...], **fields: object) -> Request:
    fields = {"status": "running", "computed": 5, "num_cached_blocks": (0,) * len(tables)} | fields
    return request("abcdefgh", *tables, **fields)


def keys(engine: Engine) -> list[str]:
    return [prefix for (_, prefix), _ in engine.cached]


def test_what_no_hit_can_be_about_is_not_cached_yet() -> None:
    held = running((1, 2, 3), (4,))
    unequal = config(FULL, WIDE)
    assert keys(caching.cache(unequal, serving(held), held, 6)[0]) == [
        "ab",
        "abcd",
        "abcd",
    ]
    with_drafter = config(EAGLE, WIDE, drafts=1)
    grown = caching.cache(with_drafter, serving(held), held, 6)[0]
    assert [p for (group, p), _ in grown.cached if group == 0] == ["ab", "abcd", "abcdef"]


def test_an_engine_that_hashes_a_block_twice_dies_and_caches_no_more() -> None:
    held = running((1, 1, 2))
    again = held._replace(num_cached_blocks=(0,))
    begun = serving(held, cached={(0, "ab"): 1})
    engine, after = caching.cache(config(FULL), begun, again, 6)
    assert engine.dead == Death(message="block 1 is to be hashed twice")
    assert (engine.cached, after) == (begun.cached, again)


# Prefixes that end inside a block


def ending(prompt: str, computed: int, **options: object) -> Engine:
    """An engine that has cached what it computed of a prompt in blocks 1, 2 and 3, 4."""
    held = request(
        prompt, (1, 2), (3, 4), num_cached_blocks=(0, 0), status="running", computed=computed
    )
    cfg = config(WIDE, WIDE_STATE, num_blocks=12, **{"match_unit": 2} | options)
    return caching.cache(cfg, serving(held, reports=()), held, computed)[0]


def test_the_last_prefix_of_a_prompt_is_cached_inside_its_block() -> None:
    engine = ending("abcdefg", 6)
    assert engine.blocks_for((0, "abcdef")) == (2,)
    assert engine.blocks_for((1, "abcdef")) == (4,)
    assert engine.reports is not None
    assert engine.reports[-1] == Stored(1, "abcd", "ef", ("abcdef",))
