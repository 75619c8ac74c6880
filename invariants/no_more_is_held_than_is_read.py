"""A window group that frees no block behind the window, or a Mamba group that keeps old states,
holds blocks that no layer reads any more. All answers stay correct, but the pool fills up, and
other requests wait or are preempted. At start, vLLM reserves no more blocks per request than this
bound (compare vllm#39734).

Blocks are freed by the next step, so a request may still hold what one step reads. For a window:
the tokens that the first token of the step reads, and the tokens of the steps in flight. For a
Mamba group: the state before and after each step in flight, and one state for each draft. A Mamba
group of mode none keeps one state in one block for the whole request.
"""

from collections.abc import Iterator

from kvproof.invariants.arithmetic import blocks_begun
from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import NULL, Engine
from kvproof.model.subjects import Subject


def most(cfg: EngineConfig, group: Group) -> int:
    """Maximum number of blocks of a group that one request may hold. A window can begin inside a
    block and then touches one more block."""
    if group.kind == "window":
        seen = group.window - 1 + cfg.chunk_tokens * cfg.steps_in_flight + cfg.lookahead
        return blocks_begun(seen, group.block_size) + 1
    return 1 + cfg.steps_in_flight + cfg.drafts


def _held(cluster: Cluster, engine: Engine) -> Iterator[tuple[str, int, int, int]]:
    """For each request and group that frees blocks: the request, the group's index, the number of
    blocks that the request holds, and its maximum."""
    cfg = cluster.engine(engine.name)
    for request in engine.requests:
        for index, table in enumerate(request.tables):
            group = cfg.groups[index]
            if group.kind == "window" or group.aligned:
                yield request.id, index, len(table) - table.count(NULL), most(cfg, group)


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """No request holds more window or state blocks than its layers may still read."""
    for request, index, held, may in _held(cluster, engine):
        if held > may:
            kind = cluster.engine(engine.name).groups[index].kind
            yield because(
                reason(
                    "layers_read",
                    "the layers of group {group} ({kind}) read at most {may} blocks "
                    "of {request} on {engine}",
                    kind=kind,
                    may=may,
                ),
                reason("holds_blocks", "the request holds {held} blocks", held=held),
                engine=engine.name,
                request=request,
                group=index,
            )


def margin(cluster: Cluster, engine: Engine) -> int | None:
    """Smallest number of blocks that a request could still take without a violation."""
    return min((may - held for _, _, held, may in _held(cluster, engine)), default=None)


INVARIANT = Invariant(
    id="no_more_is_held_than_is_read",
    name="a request holds no more window or state blocks than its layers still read",
    origin="vllm#39734",
    severity=Severity.LEAK,
    check=EachEngine(check),
    needs=(Need.TABLES, Need.LEFT_BEHIND, Need.WINDOWS_KEPT, Need.STATES_KEPT),
    subjects=(Subject.REAL_BLOCKS, Subject.BLOCKS),
    margin=margin,
    killed_by="old_states_are_kept",
)
