"""Each cache group has blocks of its own, and a prefix is there only if each group that needs it
has it. A router that does not learn the group of a stored block takes it for one of another group
(vllm#44103)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Announced, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Where there are several groups, an event names the one of its blocks."""
    if isinstance(fact, Announced) and fact.groups > 1 and fact.group_tokens is None:
        yield because(
            reason("groups", "the engine has {groups} cache groups", groups=fact.groups),
            reason("nameless", "an event of stored blocks names none of them"),
        )


RULE = ConnectorRule(
    id="events_name_their_group",
    name="where there are several cache groups, an event of stored blocks names its group",
    origin="take_events, BlockStored.group_idx; vllm#44103",
    severity=Severity.LOST_PERFORMANCE,
    counts="events beside several groups",
    otherwise="it reported no event with tokens beside several groups",
    judge=judge,
)
