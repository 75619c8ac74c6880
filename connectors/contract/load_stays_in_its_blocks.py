"""A connector may write to blocks of requests that load, and there only to slots that are still to
be filled. A late write, or a copy into the wrong block, destroys the KV of another request
(vllm#46283, vllm#52372)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.connectors.contract.words import content, place
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Wrote
from kvproof.model.severity import Severity


def judge(fact: Fact, past: Past) -> Iterator[Because]:
    """The connector changed only what a load of its may change."""
    if isinstance(fact, Wrote):
        holder = reason("nobody_has", "no request has this block")
        if fact.holder:
            holder = reason("has_block", "{request} has this block")
        yield because(
            reason(
                "held",
                "{place} held {content}; {holder}, and {loads:names} is loading",
                place=place(fact.slot),
                content=content(fact.held),
                holder=holder,
                loads=past.loads,
            ),
            reason("wrote", "the connector wrote {content} there", content=content(fact.found)),
            request=fact.holder,
            group=fact.slot.group,
            block=fact.slot.block,
        )


RULE = ConnectorRule(
    id="load_stays_in_its_blocks",
    name="a connector writes only to slots of a loading request that are still to be filled",
    origin="start_load_kv; update_state_after_alloc",
    severity=Severity.WRONG_TOKENS,
    counts="writes",
    otherwise="it wrote nothing",
    judge=judge,
)
