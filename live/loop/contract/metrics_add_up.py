"""Operators see from metrics what an engine does: how many tokens it answers, and how many its
steps compute. A token of a prompt that was found in a cache or loaded is in no step (vllm#43346):
counted there, an engine looks busier than it is. The last token of an answer is sampled and never
computed, so that a step may seem to have one token more for each answer. Of an idle engine they
show no request and no block: what was recorded last stays."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, nothing_left
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The exported numbers are those of what was done."""
    did, says = played.did, played.exported
    if did is None or says is None:
        return
    if says.answered != did.answered:
        yield because(
            reason("received", "clients received {tokens} tokens", tokens=did.answered),
            reason(
                "answers",
                "the metrics say that {tokens} were answered",
                tokens=says.answered,
                feature="answers",
            ),
        )
    last = played.waits[-1] if played.waits else None
    if last is not None and nothing_left(last) and any(says.now) and not played.busy:
        yield because(
            idle(last),
            reason("left", "no request, step or transfer is left, and every block is free"),
            reason(
                "shows",
                "the metrics show {running} running and {waiting} waiting requests, and {part} of "
                "the blocks in use",
                running=int(says.now[0]),
                waiting=int(says.now[1]),
                part=f"{says.now[2]:.0%}",
                feature="an idle engine",
            ),
        )
    most = did.computed + did.requests
    if says.computed > most:
        yield because(
            reason(
                "computed",
                "steps computed {tokens} tokens, and {requests} requests got an answer",
                tokens=did.computed,
                requests=did.requests,
            ),
            reason(
                "steps",
                "the metrics say that steps had {tokens}",
                tokens=says.computed,
                feature="steps",
            ),
        )


RULE = EngineRule(
    id="metrics_add_up",
    name="the exported numbers of tokens are those of what was computed and answered",
    origin="PrometheusStatLogger.record; vllm#43346",
    severity=Severity.WRONG_REPORT,
    judge=judge,
)
