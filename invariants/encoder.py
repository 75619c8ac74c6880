"""The encoder cache: what was made of the images of a request."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, Reason, because, choice, holds_if, reason, release
from kvproof.model.facts.connectors import (
    ItemDropped,
    ItemEncoded,
    ItemRead,
    ItemReadAhead,
    ItemsEncoded,
    ItemsHeld,
    ItemsOwed,
)
from kvproof.model.severity import Severity


def _reads_image(fact: ItemRead) -> Reason:
    return reason(
        "reads_image",
        "a step of {request} computes token {token}, of image {item}",
        token=fact.token,
        item=fact.item,
    )


@check(
    "what the encoder made of an image is there in each step that reads it",
    origin="SchedulerOutput.scheduled_encoder_inputs, free_encoder_mm_hashes; vllm#38907",
    severity=Severity.CRASH,
    apart="",
)
def encoder_output_is_there(fact: ItemRead) -> Iterator[Judged]:
    """The scheduler says which images the encoder computes, and which outputs the worker drops. A
    step that computes a token of an image needs its output; if it was dropped before, the engine
    dies of an encoder cache miss (vllm#46315). What no request needs may be dropped at any time, so
    a request needs it until the step has run (vllm#38907)."""
    if not fact.there:
        yield because(
            _reads_image(fact),
            reason("no_output", "the worker does not have what the encoder made of it"),
            request=fact.request,
        )
    else:
        yield holds_if(fact.kept) or because(
            reason("reads", "a step of {request} reads image {item}", item=fact.item),
            reason("unkept", "the encoder cache counts it as free before the step has run"),
            request=fact.request,
        )


@check(
    "what the encoder made of an image is there where a drafter reads ahead",
    origin="Scheduler._try_schedule_encoder_inputs; vllm#34220",
    severity=Severity.LOST_PERFORMANCE,
    apart="",
)
def drafter_has_what_it_reads(fact: ItemReadAhead) -> Iterator[Judged]:
    """A drafter reads a token more than the step computes. If an image begins there, the scheduler
    has it encoded in time, or ends the step a token earlier. Else the drafter reads a placeholder,
    and its drafts are rejected (vllm#34220)."""
    yield holds_if(fact.there) or because(
        reason(
            "reads_ahead",
            "a drafter reads token {token} of {request}, with which image {item} begins",
            token=fact.token,
            item=fact.item,
        ),
        reason("no_output_yet", "the worker does not have what the encoder made of it"),
        excuses=(release("the drafter goes on without it"),),
        request=fact.request,
    )


@check(
    "what a step reads of an image is what the encoder made of that image",
    origin="ECConnectorBase.start_load_caches, save_caches",
    severity=Severity.WRONG_TOKENS,
    apart="connectors",
)
def encoder_output_is_its_own(fact: ItemRead) -> Iterator[Judged]:
    """An encoder-cache connector loads what the encoder made of an image, in place of computing it.
    A step that reads anything else answers about another image."""
    if not fact.there:
        return  # cannot be judged: there is nothing to compare
    yield holds_if(fact.right) or because(
        _reads_image(fact),
        reason("other_output", "what the worker has for it is not what the encoder made of it"),
        request=fact.request,
    )


@check(
    "a step computes an image as a whole",
    origin="SchedulerConfig.disable_chunked_mm_input",
    severity=Severity.WRONG_TOKENS,
    apart="",
)
def images_are_not_cut(fact: ItemRead) -> Iterator[Judged]:
    """In some models the tokens of an image attend to each other in both directions. A step that
    ends inside the image computes its first tokens without the last ones. Such a model is run with
    `disable_chunked_mm_input`; other engines may cut, and one that does so more often than before
    is told beside its base."""
    yield holds_if(not fact.cut) or because(
        _reads_image(fact),
        reason("ends_inside", "the step ends inside the image"),
        excuses=(choice("the engine is set so that it may cut images"),) * fact.may_cut,
        request=fact.request,
    )


@check(
    "a request ends at an engine that only encodes when all its images are encoded",
    origin="ECTransferConfig.ec_role, make_empty_encoder_model_runner_output; vllm#50275",
    severity=Severity.HANG,
    apart="",
)
def encoder_instance_encodes_all(fact: ItemsEncoded) -> Iterator[Judged]:
    """An engine that only encodes images (`ec_role` is `ec_producer`) samples nothing: a request
    has ended well when all its images are encoded. If it ends before, its client has an answer, and
    the engine that computes the prompt waits for what nobody encodes (vllm#50275)."""
    yield holds_if(not fact.lacking) or because(
        reason("ended_well", "{request} has ended at an engine that only encodes images"),
        reason("unencoded", "no step has encoded {items}", items=fact.lacking),
        request=fact.request,
    )


@check(
    "a worker drops no output that the encoder cache has",
    origin="EncoderCacheManager.get_freed_mm_hashes; vllm#52482",
    severity=Severity.LOST_PERFORMANCE,
    apart="",
)
def encoder_drops_what_it_gave_up(fact: ItemDropped) -> Iterator[Judged]:
    """The scheduler names the encoder outputs that a worker must drop. An output that the encoder
    cache has taken again in the same step is still needed (vllm#52482)."""
    yield holds_if(not fact.counted) or because(
        reason("has", "the encoder cache has image {item}", item=fact.item),
        reason("drops", "the worker is to drop what the encoder made of it"),
    )


@check(
    "an image is encoded once",
    origin="EncoderCacheManager.check_and_update_cache",
    severity=Severity.LOST_PERFORMANCE,
    ideal=True,
    apart="",
)
def image_is_encoded_once(fact: ItemEncoded) -> Iterator[Judged]:
    """The encoder of images takes longer than many steps of the model. An ideal, because an encoder
    cache has no room for all images: a scheduler that encodes more of them again than before is
    told beside its base."""
    yield holds_if(not fact.again) or because(
        reason("was_encoded", "an earlier step encoded image {item}", item=fact.item),
        reason("is_encoded", "a step encodes it again, for {request}"),
        excuses=(STILL_THERE if fact.held else DROPPED,),
        request=fact.request,
    )


# No choice: what the worker has costs nothing to read.
STILL_THERE = release("the worker still has its output")
DROPPED = choice("its output was dropped since")


@check(
    "the encoder cache counts what the worker has, and no more than fits",
    origin="EncoderCacheManager",
    severity=Severity.LEAK,
    apart="",
)
def encoder_room_adds_up(fact: ItemsHeld | ItemsOwed) -> Iterator[Judged]:
    """The encoder cache counts tokens. If it frees an image twice, the worker gets more outputs
    than fit. If it never frees an image, no request with an image is scheduled any more."""
    if isinstance(fact, ItemsHeld):
        yield holds_if(fact.tokens <= fact.room, bool(fact.tokens)) or because(
            reason("room", "the encoder cache has room for {room} tokens", room=fact.room),
            reason("holds", "the worker has outputs for {tokens} tokens", tokens=fact.tokens),
        )
    else:
        yield holds_if(fact.taken == fact.there and not fact.used, bool(fact.there)) or because(
            reason(
                "worker_has",
                "the engine is idle, and the worker has outputs for {there} tokens",
                there=fact.there,
            ),
            reason(
                "counts_taken",
                "the encoder cache counts {taken} tokens as taken, {used} of them as in use",
                taken=fact.taken,
                used=fact.used,
            ),
        )
