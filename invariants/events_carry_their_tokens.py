"""A `BlockStored` event carries block hashes and the tokens of these blocks. A router that computes
its own hashes cuts the tokens into blocks and assigns the first block to the first hash. When vLLM
skipped blocks of a Mamba group, the event carried the tokens of all blocks and the hashes of some,
so the router assigned hashes to wrong tokens (vllm#44451). An event whose parent was never reported
leaves a gap in the router's chain of hashes (vllm#58119).

If hashes cover the token after a block, the event carries this token for each block too
(vllm#50438). An event about a prefix that ends inside a block carries the tokens after the last
prefix that has a hash.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.kv_events import Removed, Stored
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """The tokens of a report, cut into blocks after its parent, give exactly the prefixes that it
    names. The parent is empty or was reported as cached before."""
    if not step.effects.reports:
        return
    # Only an event of its own engine changes a cache; an event of a transfer does not.
    engine = cluster.engine(getattr(step.event, "engine", cluster.decode.name))
    known = set(step.before.engine(engine.name).ghost.mirror or ())
    for report in step.effects.reports:
        if isinstance(report, Stored):
            ahead = engine.hash_lookahead_tokens
            size = engine.groups[report.group].block_size
            if any((len(prefix) - ahead) % size for prefix in report.prefixes):
                size = engine.hash_unit
            start = max(len(report.parent) - ahead, 0)
            whole = report.parent[:start] + report.tokens
            after = report.lookahead or ("",) * len(report.prefixes)
            ends = range(start + size, len(whole) + 1, size)
            if report.prefixes != tuple(map(str.__add__, (whole[:end] for end in ends), after)):
                yield because(
                    reason(
                        "reports_stored",
                        "{engine} reports {prefixes:listed} as stored in group {group}, in "
                        "blocks of {size} tokens",
                        prefixes=report.prefixes,
                        size=size,
                    ),
                    reason(
                        "reported_tokens",
                        "the reported tokens are '{tokens}' after '{parent}'"
                        + (", and {lookahead:listed} after each block" if ahead else ""),
                        tokens=report.tokens,
                        parent=report.parent,
                        lookahead=report.lookahead,
                    ),
                    engine=engine.name,
                    group=report.group,
                )
            if report.parent and report.parent not in {prefix for _, prefix in known}:
                yield because(
                    reason(
                        "reports_stored_after",
                        "{engine} reports blocks stored after '{parent}'",
                        parent=report.parent,
                    ),
                    reason("parent_not_reported", "no event has reported this parent as cached"),
                    engine=engine.name,
                    group=report.group,
                )
        if isinstance(report, Stored):
            known.update((report.group, prefix) for prefix in report.prefixes)
        elif isinstance(report, Removed):
            known.discard((report.group, report.prefix))
        else:
            known.clear()


INVARIANT = Invariant(
    id="events_carry_their_tokens",
    name=(
        "a KV event carries the tokens of exactly the blocks that it names, and its parent is known"
    ),
    origin="vllm#44451",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.EVENT_TOKENS,),
    subjects=(Subject.EVENTS,),
    killed_by="report_spans_skipped_blocks",
)
