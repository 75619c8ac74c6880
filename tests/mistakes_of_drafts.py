"""Mistakes of speculative decoding, put back into real vLLM, and the invariants that find them."""

from typing import Any

import pytest

from tests.mistakes import Mistake


def _scheduler() -> Any:
    from vllm.v1.core.sched.scheduler import Scheduler

    return Scheduler


def _managers() -> Any:
    from vllm.v1.core import single_type_kv_cache_manager

    return single_type_kv_cache_manager


def lookahead_not_reserved(patch: pytest.MonkeyPatch) -> None:
    from vllm.config import VllmConfig

    patch.setattr(VllmConfig, "num_lookahead_tokens", 0)


def rejected_drafts_are_computed(patch: pytest.MonkeyPatch) -> None:
    original = _scheduler().update_from_output

    def kept(self: Any, output: Any, result: Any) -> Any:
        ends = {name: self.requests[name].num_computed_tokens for name in result.req_ids}
        outputs = original(self, output, result)
        for name in output.scheduled_spec_decode_tokens:
            if name in self.requests:
                self.requests[name].num_computed_tokens = ends[name]
        return outputs

    patch.setattr(_scheduler(), "update_from_output", kept)


def last_match_not_dropped(patch: pytest.MonkeyPatch) -> None:
    manager = _managers().FullAttentionManager
    original = manager.find_longest_cache_hit.__func__

    def undropped(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return original(cls, *args, **kwargs | {"drop_eagle_block": False})

    patch.setattr(manager, "find_longest_cache_hit", classmethod(undropped))


def eagle_drop_block_not_cached(patch: pytest.MonkeyPatch) -> None:
    manager = _managers().SlidingWindowManager
    original = manager.reachable_block_mask.__func__

    def without_it(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return original(cls, *args, **kwargs | {"use_eagle": False})

    patch.setattr(manager, "reachable_block_mask", classmethod(without_it))


def state_past_the_resume(patch: pytest.MonkeyPatch) -> None:
    original = _scheduler()._mamba_block_aligned_split

    def at_the_last_boundary(self: Any, *args: Any) -> Any:
        drops, self.use_eagle_block_drop = self.use_eagle_block_drop, False
        tokens = original(self, *args)
        self.use_eagle_block_drop = drops
        return tokens

    patch.setattr(_scheduler(), "_mamba_block_aligned_split", at_the_last_boundary)


def fewer_blocks_than_held_dies(patch: pytest.MonkeyPatch) -> None:
    manager = _managers().MambaManager
    original = manager.allocate_new_blocks

    def asserting(self: Any, name: str, tokens: int, main: int) -> Any:
        needed = -(-main // self.block_size) + self.num_speculative_blocks
        assert needed >= len(self.req_to_blocks[name])
        return original(self, name, tokens, main)

    patch.setattr(manager, "allocate_new_blocks", asserting)


MISTAKES = {
    "lookahead_not_reserved": Mistake(lookahead_not_reserved, "writer_is_alone"),
    "rejected_drafts_are_computed": Mistake(
        rejected_drafts_are_computed, "request_reads_its_own_prefix"
    ),
    "last_match_not_dropped": Mistake(last_match_not_dropped, "hit_holds_in_every_group"),
    "eagle_drop_block_not_cached": Mistake(eagle_drop_block_not_cached, "repeated_prompt_hits"),
    "state_past_the_resume": Mistake(state_past_the_resume, "repeated_prompt_hits"),
    "fewer_blocks_than_held_dies": Mistake(fewer_blocks_than_held_dies, "engine_survives"),
}
