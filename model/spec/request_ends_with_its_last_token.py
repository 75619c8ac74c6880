"""A request that continues after its last token wastes steps and keeps its blocks. A request that
ends earlier has an incomplete answer (vllm#53130)."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Complete
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive, requests
from kvproof.model.spec.guard import Guard
from kvproof.model.spec.output_is_what_was_sampled import sampled
from kvproof.model.state import PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The output of a step ends exactly the requests that have all their tokens."""
    event = step.event
    if not isinstance(event, Complete):
        return
    for engines in alive(step):
        if engines.after.name != event.engine:
            continue
        for name, was, now in requests(engines):
            if was is None or (event.failed == name and cluster.load_failure == "fail"):
                continue
            tokens = len(was.output) + sampled(engines.before, event, was)
            going = now is not None and now.status in (WAITING, RUNNING, PREEMPTED)
            if going == (tokens >= was.max_tokens) and was.status in (RUNNING, PREEMPTED):
                yield because(
                    reason(
                        "has_output",
                        "{request} on {engine} has {tokens} of its {max_tokens} output tokens",
                        tokens=tokens,
                        max_tokens=was.max_tokens,
                    ),
                    reason(
                        "has_status", "its status is {status}", status=now.status if now else "gone"
                    ),
                    engine=engines.after.name,
                    request=name,
                )


GUARD = Guard(
    id="request_ends_with_its_last_token",
    name="a request ends with the last token that it asked for, and not before",
    part="scheduler",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.ENDS,),
)
