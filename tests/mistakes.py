"""Historical mistakes, put back into real vLLM, and the invariants that find them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]


class Mistake(NamedTuple):
    """A change of vLLM's classes that puts a mistake back, and the invariant that finds it."""

    change: Patch
    finds: str

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Put it into vLLM, after the contract is checked: what is put there in the place of a
        method need not name its parameters."""
        from kvproof.live.contract_check import check

        check()
        self.change(patch)


def _nixl() -> Any:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_scheduler

    return base_scheduler.NixlBaseConnectorScheduler


def decode_loads_whole_prompt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_nixl(), "_get_remote_prefill_token_count", lambda _self, prompt: prompt)


def truncation_without_guard(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._preempt_request

    def truncated_again(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        original(self, request, *args, **kwargs)
        if request.kv_transfer_params.pop("_p_side_truncated", None):
            self.connector.connector_scheduler._truncate_request_for_prefill(request)

    patch.setattr(Scheduler, "_preempt_request", truncated_again)


def truncates_for_any_non_full_group(patch: pytest.MonkeyPatch) -> None:
    original = _nixl()._truncate_request_for_prefill

    def truncated(self: Any, request: Any) -> None:
        had, self._has_mamba = self._has_mamba, self._is_hma_required
        original(self, request)
        self._has_mamba = had

    patch.setattr(_nixl(), "_truncate_request_for_prefill", truncated)


def _worker() -> Any:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker

    return base_worker.NixlBaseConnectorWorker


def front_trim(patch: pytest.MonkeyPatch) -> None:
    def front(_self: Any, local: Any, remote: Any, _ours: int, _theirs: int) -> Any:
        both = [min(len(a), len(b)) for a, b in zip(local, remote, strict=True)]
        return (
            [a[:n] for a, n in zip(local, both, strict=True)],
            [b[:n] for b, n in zip(remote, both, strict=True)],
        )

    patch.setattr(_worker(), "_apply_prefix_caching", front)


def ssm_placeholders_not_trimmed(patch: pytest.MonkeyPatch) -> None:
    clip = _nixl().get_exchange_clipped_blocks

    def unclipped(self: Any, blocks: Any, **_options: Any) -> Any:
        return clip(self, blocks, clip_ssm=False)

    original = _worker()._apply_prefix_caching

    def untrimmed(self: Any, local: Any, remote: Any, own: int, other: int) -> Any:
        ours, theirs = original(
            self, local, [b[-len(a) :] for a, b in zip(local, remote, strict=True)], own, other
        )
        state = [issubclass(t, _mamba_spec()) for t in self._group_spec_types]
        return ours, [r if s else t for r, t, s in zip(remote, theirs, state, strict=True)]

    patch.setattr(_nixl(), "get_exchange_clipped_blocks", unclipped)
    patch.setattr(_worker(), "_apply_prefix_caching", untrimmed)


def _mamba_spec() -> Any:
    from vllm.v1.kv_cache_interface import MambaSpec

    return MambaSpec


def null_blocks_registered(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager

    original = MambaManager.cache_blocks

    def registering(self: Any, request: Any, tokens: int, *args: Any, **kwargs: Any) -> None:
        original(self, request, tokens, *args, **kwargs)
        blocks = self.req_to_blocks[request.request_id]
        cached = self.block_pool.cached_block_hash_to_block
        for position in range(tokens // self.block_size):
            if blocks[position].is_null:
                value = request.block_hashes[position]
                key = make_block_hash_with_group_id(value, self.kv_cache_group_id)
                cached.insert(key, blocks[position])

    patch.setattr(MambaManager, "cache_blocks", registering)


def state_only_at_last_boundary(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.get_computed_blocks
    patch.setattr(
        KVCacheManager, "get_computed_blocks", lambda self, r: (*original(self, r)[:2], 0)
    )


def no_align_split(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    patch.setattr(Scheduler, "_mamba_block_aligned_split", lambda _s, _r, tokens, *_a: tokens)


def _pool() -> Any:
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool


def uncached_blocks_go_last(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.block_pool import BlockPool

    right = BlockPool.free_blocks

    def last(self: Any, blocks: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self.free_block_queue, "prepend_n", self.free_block_queue.append_n)
            right(self, blocks)

    patch.setattr(BlockPool, "free_blocks", last)


def prefix_is_freed_first(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager as Manager

    def free(self: Any, name: str) -> None:
        self.block_pool.free_blocks(self.pop_blocks_for_free(name))

    patch.setattr(Manager, "free", free)


def untouched_hits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_pool(), "touch", lambda _self, _blocks: None)


def evicted_key_stays(patch: pytest.MonkeyPatch) -> None:
    def forget(_self: Any, block: Any) -> bool:
        block.reset_hash()
        return True

    patch.setattr(_pool(), "_maybe_evict_cached_block", forget)


def prediction_forgets_hits(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager

    none = classmethod(lambda _cls, _blocks: 0)
    patch.setattr(SingleTypeKVCacheManager, "_get_num_evictable_blocks", none)


def abort_frees_under_load(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._free_request
    patch.setattr(
        Scheduler, "_free_request", lambda self, request, **_delay: original(self, request)
    )


def hit_needs_every_group_on_decode(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import connector

    owners = [c for c in vars(connector).values() if isinstance(c, type)]
    for owner in owners:
        if "supports_divergent_local_hybrid_hits" in vars(owner):
            patch.setattr(owner, "supports_divergent_local_hybrid_hits", False)


def retained_boundary_out_of_reach(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core import kv_cache_coordinator

    patch.setattr(
        kv_cache_coordinator, "replay_boundaries", lambda prompt, *_args, **_options: (prompt,)
    )


def retention_drops_shared_prefix_boundary(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

    original = SlidingWindowManager.reachable_block_mask

    def mask(**options: Any) -> Any:
        return original(**{**options, "reachable_boundaries": options["reachable_boundaries"][:1]})

    patch.setattr(SlidingWindowManager, "reachable_block_mask", staticmethod(mask))


def window_freed_in_flight(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.allocate_slots

    def judged_by_all_computed(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        flying, request.num_in_flight_tokens = request.num_in_flight_tokens, 0
        result = original(self, request, *args, **kwargs)
        request.num_in_flight_tokens = flying
        return result

    patch.setattr(KVCacheManager, "allocate_slots", judged_by_all_computed)


def frees_before_steps_end(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    patch.setattr(Scheduler, "_request_blocks_can_be_freed", lambda _self, _request: True)


def late_output_takes_placeholder(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    original = AsyncScheduler._update_request_with_output

    def taking(self: Any, request: Any, tokens: Any, is_stale: bool = False) -> Any:
        result = original(self, request, tokens, is_stale)
        request.num_output_placeholders -= len(result[0]) if is_stale else 0
        return result

    patch.setattr(AsyncScheduler, "_update_request_with_output", taking)


def chunk_takes_placeholder(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    original = AsyncScheduler.update_from_output

    def taking(self: Any, scheduled: Any, output: Any) -> Any:
        result = original(self, scheduled, output)
        for name, tokens in zip(output.req_ids, output.sampled_token_ids or (), strict=False):
            if not tokens and name in self.requests:
                self.requests[name].num_output_placeholders -= 1
        return result

    patch.setattr(AsyncScheduler, "update_from_output", taking)


def extra_keys_left_out(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core import kv_cache_utils

    def without(_request: Any, _start: int, _end: int, mm_index: int) -> tuple[None, int]:
        return None, mm_index

    patch.setattr(kv_cache_utils, "generate_block_hash_extra_keys", without)


def window_offer_one_block_short(patch: pytest.MonkeyPatch) -> None:
    original = _nixl().__init__

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.blocks_per_sw = [max(blocks - 1, 0) for blocks in self.blocks_per_sw]

    patch.setattr(_nixl(), "__init__", made)


def loads_take_the_last_blocks(patch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    original = KVCacheManager.allocate_slots

    def unreserved(self: Any, *args: Any, **named: Any) -> Any:
        if named.get("delay_cache_blocks"):  # a load that is not in this step
            named |= {"full_sequence_must_fit": False, "reserved_blocks": 0}
        return original(self, *args, **named)

    patch.setattr(KVCacheManager, "allocate_slots", unreserved)


MISTAKES = {
    "loads_take_the_last_blocks": Mistake(loads_take_the_last_blocks, "every_request_can_finish"),
    "window_offer_one_block_short": Mistake(
        window_offer_one_block_short, "cached_block_holds_its_key"
    ),
    "extra_keys_left_out": Mistake(extra_keys_left_out, "cached_block_holds_its_key"),
    "window_freed_in_flight": Mistake(window_freed_in_flight, "settled_frees"),
    "frees_before_steps_end": Mistake(frees_before_steps_end, "settled_frees"),
    "late_output_takes_placeholder": Mistake(
        late_output_takes_placeholder, "placeholders_are_samples_in_flight"
    ),
    "chunk_takes_placeholder": Mistake(
        chunk_takes_placeholder, "placeholders_are_samples_in_flight"
    ),
    "decode_loads_whole_prompt": Mistake(decode_loads_whole_prompt, "prefill_and_decode_agree"),
    "truncation_without_guard": Mistake(truncation_without_guard, "truncated_at_most_once"),
    "truncates_for_any_non_full_group": Mistake(
        truncates_for_any_non_full_group, "prefill_and_decode_agree"
    ),
    "front_trim": Mistake(front_trim, "paired_offsets_are_equal"),
    "ssm_placeholders_not_trimmed": Mistake(ssm_placeholders_not_trimmed, "paired_lists_are_equal"),
    "null_blocks_registered": Mistake(null_blocks_registered, "null_block_is_nobody"),
    "state_only_at_last_boundary": Mistake(state_only_at_last_boundary, "repeated_prompt_hits"),
    "no_align_split": Mistake(no_align_split, "cached_block_holds_its_key"),
    "uncached_blocks_go_last": Mistake(
        uncached_blocks_go_last, "uncached_blocks_are_reused_at_once"
    ),
    "prefix_is_freed_first": Mistake(prefix_is_freed_first, "unneeded_blocks_are_reused_first"),
    "untouched_hits": Mistake(untouched_hits, "references_are_exact"),
    "evicted_key_stays": Mistake(evicted_key_stays, "hash_map_is_sound"),
    "prediction_forgets_hits": Mistake(prediction_forgets_hits, "predicted_is_taken"),
    "abort_frees_under_load": Mistake(abort_frees_under_load, "nothing_reused_under_transfer"),
    "hit_needs_every_group_on_decode": Mistake(
        hit_needs_every_group_on_decode, "repeated_prompt_hits"
    ),
    "retained_boundary_out_of_reach": Mistake(
        retained_boundary_out_of_reach, "repeated_prompt_hits"
    ),
    "retention_drops_shared_prefix_boundary": Mistake(
        retention_drops_shared_prefix_boundary, "repeated_prompt_hits"
    ),
}
