"""What a watcher judges: each invariant by a part of an engine, or a reason why none does."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.live.watch.not_judged import JUDGED, NOT_JUDGED
from kvproof.live.watch.summary import Summary
from kvproof.model.events import Complete, Schedule, Submit
from kvproof.model.presets import CLUSTERS
from tests.conftest import CAREFUL, rewritten

PAGE = Path(__file__).parent.parent / "docs" / "watched.md"

HEAD = """# What a watcher judges

The [sanitizer](sanitizer.md) asks the invariants about parts of a running engine. This page says
about which parts each invariant is asked, or why no watcher can judge it. Where a part is not
known, it is not judged, and the summary counts it.

| invariant | asked about |
|---|---|
"""


def page() -> str:
    """The page, from the parts and the reasons."""
    from kvproof.live.watch.parts.registry import PARTS

    lines = []
    for name in INVARIANTS:
        parts = [part for part in PARTS if name in part.judges]
        about = " ".join(_first(part.__doc__ or "") for part in parts)
        about = about or "Each exception that a step raises."
        reason = f"Not judged. {NOT_JUDGED[name]}" if name in NOT_JUDGED else about
        lines.append(f"| `{name}` | {reason} |")
    return HEAD + "\n".join(lines) + "\n"


def _first(text: str) -> str:
    """The first sentence of a docstring."""
    return " ".join(text.split()).split(". ")[0].rstrip(".") + "."


@pytest.mark.live
def test_the_page_says_what_is_judged(pytestconfig: pytest.Config) -> None:
    made, text = page(), PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if pytestconfig.getoption("--rewrite") and made != text:
        PAGE.write_text(made, encoding="utf-8")
        pytestconfig.stash[rewritten].append(PAGE.name)
        return
    assert made == text, f"the page differs: if that is right run pytest --rewrite, {CAREFUL}"


@pytest.mark.live
def test_each_invariant_is_judged_or_has_a_reason() -> None:
    from kvproof.live.watch.parts.registry import PARTS

    by_parts = {name for part in PARTS for name in part.judges}
    assert by_parts | {"engine_survives"} == set(JUDGED)
    assert set(JUDGED) | set(NOT_JUDGED) == set(INVARIANTS)
    assert all(why.endswith(".") and why.count(". ") == 0 for why in NOT_JUDGED.values())


def test_the_numbers_of_two_processes_are_added() -> None:
    one, both = Summary(), Summary()
    one.asked["pool_adds_up"] = 3
    one.found["pool_adds_up"] = 1
    one.unjudged["cache entries whose content was never seen written"] = 12
    one.skipped["settled_frees, because its steps do not overlap"] = 1
    both.add(one.plain())
    both.add(one.plain())
    lines = list(both.lines())
    assert lines[:2] == ["VIOLATED: pool_adds_up, 2 times", "judged: pool_adds_up 6"]
    assert "not judged: 24 cache entries whose content was never seen written" in lines
    assert "not judged on 2 engines, because its steps do not overlap: settled_frees" in lines
    assert any(line.startswith("never judged by a watcher: room_is_used. ") for line in lines)


def test_where_nothing_was_judged_nothing_is_known() -> None:
    assert "UNKNOWN: nothing was judged" in Summary().lines()


@pytest.mark.live
def test_a_mistake_of_a_part_ends_that_part_and_is_printed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvproof.live.machine import LiveMachine
    from kvproof.live.watch.judge import Judge
    from kvproof.live.watch.observer import Observer
    from kvproof.live.watch.parts.requests import Requests

    def questions(_self: Requests) -> Any:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Requests, "questions", questions)
    found: Counter[str] = Counter()
    said: list[str] = []
    machine = LiveMachine(CLUSTERS["full"])
    judge = Judge(lambda finding, _: found.update([finding.invariant]), said.append)
    Observer(machine.nodes["E"].scheduler, judge)
    for event in (Submit("E", "r0"), Schedule("E"), Complete("E")):
        machine.take(event)
    assert said == [
        "kvproof made a mistake (ZeroDivisionError: a mistake): it judges table_fits_its_tokens, "
        "counter_counts_only_cached, no_more_is_held_than_is_read no more, and vLLM goes on."
    ]
    assert judge.asked["worker_forgets_who_left"]
    assert not judge.asked["table_fits_its_tokens"]
    assert not found


def specs() -> dict[str, Any]:
    """A cache group of each kind that needs a word of its own."""
    import torch
    from vllm.v1 import kv_cache_interface as kinds

    shape: Any = {"block_size": 4, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    return {
        "window": kinds.SlidingWindowMLASpec(**shape, sliding_window=9),
        "full": kinds.HiddenStateCacheSpec(**shape),
        "replayed": kinds.SlidingWindowMLASpec(**shape, sliding_window=9, bounded_replay=True),
        "chunks": kinds.ChunkedLocalAttentionSpec(**shape, attention_chunk_size=8),
        "encoder": kinds.CrossAttentionSpec(**shape),
        "answer": kinds.RSWASpec(**shape, rswa_window=8),
    }


@pytest.mark.live
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("window", ""),
        ("full", ""),
        ("replayed", "its windows are not cached: the end of a hit is computed again"),
        ("chunks", "ChunkedLocalAttentionSpec, which reads from the last multiple"),
        ("encoder", "CrossAttentionSpec, whose blocks hold the tokens of an encoder"),
        ("answer", "RSWASpec, which reads the whole prompt and a window of the answer"),
    ],
)
def test_a_cache_group_is_known_or_has_a_reason(name: str, said: str) -> None:
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    from kvproof.live import build
    from kvproof.live.watch.groups import Unknown, group
    from kvproof.model.config import Engine, Group

    scheduler = build.scheduler(Engine("E", (Group("full", 4),)), "fail")
    [manager] = scheduler.kv_cache_manager.coordinator.single_type_managers
    made = KVCacheGroupSpec(["layer"], specs()[name])
    if not said:
        found = group(made, manager)
        assert (found.kind, found.block_size) == (name, 4)
        assert found.window == (9 if name == "window" else 0)
        return
    with pytest.raises(Unknown, match=said):
        group(made, manager)
