"""Mistakes of connector authors, planted in the stores: each with the check that names it."""

from types import SimpleNamespace
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, OffloadingManager

from tests.connectors.store import Copy, LaterStore, Store

RULE_OF: dict[str, str] = {}
"""The rule that names each mistake, by the name of its class."""


def named_by(rule: str) -> Any:
    """Note the check that names a mistake."""

    def note(kind: type) -> type:
        RULE_OF[kind.__name__] = rule
        return kind

    return note


LOADED, OWN = "promised_tokens_are_loaded", "load_stays_in_its_blocks"
MATCHED, SURVIVES = "matched_tokens_can_be_loaded", "engine_survives"
REPORTS, FAILED = "reports_are_of_known_transfers", "failed_blocks_are_of_loads"
ENDS, GIVEN_BACK = "every_request_ends", "kept_blocks_are_given_back"
OFFERED, FORGETS = "stored_prefix_is_offered", "reset_forgets"
CARRIED_OUT = "reset_is_carried_out"
EVENTS = "events_carry_whole_blocks"
NO_FAILURE, TOLD_LAST = "loads_do_not_fail", "tier_is_notified_last"


# The scheduler's side.


@named_by(LOADED)
class PairsFromTheFront(Store):
    """A partial hit fills the blocks after it with the first blocks that are stored."""

    def copies(self, request: Any, blocks: list[int], first: int, last: int) -> list[Copy]:
        right = super().copies(request, blocks, first, last)
        keys = super().copies(request, blocks, 0, last - first)
        return [(key, block) for (key, _), (_, block) in zip(keys, right, strict=True)]


@named_by(LOADED)
class PromisesOneBlockMore(Store):
    """One block more is promised than is stored."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        tokens, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        left = request.num_tokens - 1 - num_computed_tokens - tokens
        return tokens + self.size * (tokens > 0 and left >= self.size), later

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        for copies in self._connector_metadata.loads.values():
            copies[:] = [copy for copy in copies if copy[0] in self.kept]
        super().start_load_kv(forward_context, **more)


@named_by(LOADED)
class SavesWhatIsNotComputed(Store):
    """The whole prompt counts as computed with its first chunk."""

    def computed_blocks(self, request: Any, tokens: int) -> int:  # noqa: ARG002
        table = self._kv_cache_manager.get_block_ids(request.request_id)[0]
        return min(request.num_prompt_tokens // self.size, len(table))


@named_by(LOADED)
class RoundsUpWhatIsComputed(Store):
    """A block of which the first token is computed counts as whole."""

    def computed_blocks(self, request: Any, tokens: int) -> int:
        whole = request.num_prompt_tokens // self.size
        return min(-(-tokens // self.size), whole)


@named_by(LOADED)
class KeyOfOneBlock(Store):
    """A block is stored under its own tokens, and not under all tokens up to its end."""

    def copies(self, request: Any, blocks: list[int], first: int, last: int) -> list[Copy]:
        right = super().copies(request, blocks, first, last)
        return [(key[-self.size :], block) for key, block in right]


@named_by(LOADED)
class ForgetsTheLocalHit(Store):
    """The load begins at the first block, although the first are a local hit."""

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            last = num_external_tokens // self.size
            table = blocks.get_block_ids()[0]
            self.loads[request.request_id] = self.copies(request, table, 0, last)


@named_by(LOADED)
class KeyWithoutSalt(Store):
    """The key has the tokens alone: not the salt, not the LoRA adapter."""

    def beside(self, request: Any) -> tuple[Any, ...]:  # noqa: ARG002
        return ()


@named_by(FORGETS)
class ResetForgetsNothing(Store):
    """The cache is said to be reset, and is not."""

    def reset_cache(self) -> bool:
        return True


@named_by(CARRIED_OUT)
class RefusesASecondReset(Store):
    """A second reset meets an assertion about the first."""

    was_reset = False

    def reset_cache(self) -> bool:
        assert not self.was_reset
        self.was_reset = True
        self.kept.clear()
        return True


@named_by(LOADED)
class SavesAfterTheBlocksAreFreed(LaterStore):
    """The blocks of an ended request are saved a step after they are given back."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        due, self.due = getattr(self, "due", {}), self.ended
        self.ended = due
        return super().build_connector_meta(scheduler_output)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        super().request_finished(request, block_ids)
        return False, None

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        _, loaded = super().get_finished(finished_req_ids)
        return None, loaded


@named_by(SURVIVES)
class DiesAtShutdown(Store):
    """The end of an engine raises an exception."""

    def shutdown(self) -> None:
        raise RuntimeError("there is nothing to end")


@named_by(MATCHED)
class NegativeMatch(Store):
    """Fewer tokens are stored than the engine has: the difference is negative."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        super().get_num_new_matched_tokens(request, num_computed_tokens)
        return self.stored_blocks(request) * self.size - num_computed_tokens, False


@named_by(MATCHED)
class LeavesNothingToCompute(Store):
    """A prompt of whole blocks is loaded whole, within the step."""

    def stored_blocks(self, request: Any) -> int:
        whole = request.num_tokens // self.size
        keys = [key for key, _ in self.copies(request, [0] * whole, 0, whole)]
        return next((i for i, key in enumerate(keys) if key not in self.kept), whole)


@named_by(MATCHED)
class LaterLoadOfNothing(LaterStore):
    """The answer for each request is a later load, also where nothing is stored."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        tokens, _ = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return tokens, True


@named_by(ENDS)
class AsksAgainForEver(Store):
    """The answer for a prompt that is stored is "ask again later", always."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        tokens, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return (None, False) if tokens else (tokens, later)


@named_by(SURVIVES)
class ForgetsAtPreemption(Store):
    """What is known of a request is dropped when it ends, and asked for in the next step."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        made = super().build_connector_meta(scheduler_output)
        for name in scheduler_output.num_scheduled_tokens:
            if self.requests[name].num_computed_tokens:
                del self.requests[name]
        return made


@named_by(GIVEN_BACK)
class KeepsWithoutASend(LaterStore):
    """The blocks of an ended request are kept, and no send of them begins."""

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        answer = super().request_finished(request, block_ids)
        self.ended.pop(request.request_id, None)
        return answer


@named_by(OFFERED)
class NeverOffersTheLastBlock(Store):
    """A match is one block shorter than what is stored."""

    def stored_blocks(self, request: Any) -> int:
        return max(super().stored_blocks(request) - 1, 0)


@named_by(OFFERED)
class StoresTheFirstChunkOnly(Store):
    """Only what the first step of a request computed is saved."""

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        made = super().build_connector_meta(scheduler_output)
        first = {new.req_id for new in scheduler_output.scheduled_new_reqs}
        made.saves = {name: copies for name, copies in made.saves.items() if name in first}
        return made


class Tier(OffloadingManager):
    """A tier that stores nothing."""

    def lookup(self, *_: Any) -> LookupResult:
        return LookupResult.MISS

    def on_new_request(self, req_context: Any) -> Any: ...
    def prepare_load(self, keys: Any, req_context: Any) -> Any: ...
    def prepare_store(self, keys: Any, req_context: Any) -> Any: ...


@named_by(TOLD_LAST)
class TellsTheEndTooEarly(Store):
    """A tier is notified of the end of a request, and then gets what to store of it."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.tier = Tier()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        context = SimpleNamespace(req_id=request.request_id)
        self.tier.on_request_finished(context)
        self.tier.prepare_store(block_ids, context)
        return super().request_finished(request, block_ids)


# The worker's side.


@named_by(LOADED)
class FailureIsNotTold(Store):
    """A block that is gone when it should be loaded is left as it is, and not reported."""

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        for copies in self._connector_metadata.loads.values():
            del copies[1::2]
        super().start_load_kv(forward_context, **more)


@named_by(LOADED)
class HalfABlockIsLoaded(Store):
    """Of each block, the first half of its tokens is loaded."""

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        before = {name: cache.clone() for name, cache in self.caches.items()}
        super().start_load_kv(forward_context, **more)
        for copies in self._connector_metadata.loads.values():
            for _, block in copies:
                for name, cache in self.caches.items():
                    half = self.size // 2
                    cache[block, :, half:] = before[name][block, :, half:]


@named_by(LOADED)
class OneLayerIsNotLoaded(Store):
    """The load is over before the last layer."""

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        whole = self.caches
        self.caches = dict(list(whole.items())[:-1])
        super().start_load_kv(forward_context, **more)
        self.caches = whole


@named_by(LOADED)
class ReportedBeforeItIsLoaded(LaterStore):
    """The load is reported in the step before the copy is made."""

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        due, self.due = getattr(self, "due", {}), self._connector_metadata.loads
        now = self._connector_metadata.loads
        self._connector_metadata.loads = due
        super().start_load_kv(forward_context, **more)
        self.loaded = set(now)


@named_by(LOADED)
class LayersAreSwapped(Store):
    """Layers of one width are saved under each other's name."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, *args: Any, **more: Any) -> None:
        names = [name for name, each in self.caches.items() if each.shape == kv_layer.shape]
        other = names[(names.index(layer_name) + 1) % len(names)]
        super().save_kv_layer(other, kv_layer, *args, **more)


@named_by(LOADED)
class LoadsIntoTheNextBlock(Store):
    """A load writes one block beside its own."""

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        for copies in self._connector_metadata.loads.values():
            last = len(next(iter(self.caches.values()))) - 1
            copies[:] = [(key, min(block + 1, last)) for key, block in copies]
        super().start_load_kv(forward_context, **more)


@named_by(OWN)
class LateWrite(LaterStore):
    """A load is repeated in the step after its report."""

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        now = dict(self._connector_metadata.loads)
        for copies in getattr(self, "again", {}).values():
            for _, block in copies:
                for cache in self.caches.values():
                    cache[block] = 0.0
        super().start_load_kv(forward_context, **more)
        self.again = now


@named_by(REPORTS)
class LoadIsReportedTwice(LaterStore):
    """The report of a load is repeated in the next step."""

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        sent, loaded = super().get_finished(finished_req_ids)
        before, self.before = getattr(self, "before", None), loaded
        return sent, set(loaded or ()) | set(before or ()) or None


@named_by(REPORTS)
class SendOfABlockThatIsNotKept(Store):
    """Each request that ends is reported as sent, although its blocks are not kept."""

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        return set(finished_req_ids) or None, None


@named_by(GIVEN_BACK)
class SendNeverEnds(LaterStore):
    """A send is never reported."""

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        _, loaded = super().get_finished(finished_req_ids)
        return None, loaded


@named_by(ENDS)
class LoadNeverEnds(LaterStore):
    """A load is never reported."""

    def get_finished(self, finished_req_ids: set[str]) -> Any:
        sent, _ = super().get_finished(finished_req_ids)
        return sent, None


@named_by(FAILED)
class FailureOfTheWrongBlock(Store):
    """A block beside those of the load is reported as failed."""

    def get_block_ids_with_load_errors(self) -> set[int]:
        loads = getattr(self, "_connector_metadata", None)
        blocks = [b for copies in loads.loads.values() for _, b in copies] if loads else []
        return {0} if blocks else set()


@named_by(NO_FAILURE)
class FailureOfAGoodLoad(Store):
    """The blocks of each load are reported as failed."""

    def get_block_ids_with_load_errors(self) -> set[int]:
        loads = getattr(self, "_connector_metadata", None)
        return {b for copies in loads.loads.values() for _, b in copies} if loads else set()


@named_by(EVENTS)
class TellsOneTokenLess(Store):
    """An event of a stored block leaves out its last token."""

    def take_events(self) -> list[Any]:
        from vllm.distributed.kv_events import BlockStored

        kept = list(self.kept)[len(getattr(self, "told", ())) :]
        self.told = list(self.kept)
        return [
            BlockStored([hash(key)], None, [0] * (self.size - 1), self.size, None, "CPU", None)
            for key in kept
        ]
