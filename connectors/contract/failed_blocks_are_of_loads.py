"""vLLM computes the tokens of failed blocks again, in the requests that have them. A connector that
names other blocks makes requests lose what they computed, and one that names none for a load that
failed leaves wrong KV in place (vllm#39732, vllm#50687)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, LoadFailed
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A block that failed to load belongs to a request that is loading."""
    if isinstance(fact, LoadFailed):
        others = sorted(set(fact.blocks) - set(fact.loading))
        if others:
            yield because(
                reason(
                    "loading", "the blocks of loading requests are {loading}", loading=fact.loading
                ),
                reason(
                    "reported_failed",
                    "the worker reports that the load of blocks {others} failed",
                    others=others,
                ),
                block=others[0],
            )


RULE = ConnectorRule(
    id="failed_blocks_are_of_loads",
    name="blocks that are reported as failed belong to requests that are loading",
    origin="get_block_ids_with_load_errors",
    severity=Severity.CRASH,
    counts="failures",
    otherwise="it reported no failed block",
    judge=judge,
)
