"""The layers of an EAGLE drafter hold for each token what depends on the next token. A prompt hits
a block and continues with another token than the block was computed with. The drafter then proposes
worse drafts, and vLLM rejects more of them; nothing fails. Therefore a hit leaves out the last
block of a match (vllm#17137), or the hash of a block covers the token after it (vllm#50438)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine
from kvproof.model.subjects import Subject


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """If hashes cover the token after a block, the drafter has computed the block with that
    token."""
    cfg = cluster.engine(engine.name)
    if not cfg.hash_lookahead_tokens:
        return
    for (index, prefix), blocks in engine.cached:
        group = cfg.groups[index]
        for block in blocks if group.eagle else ():
            content = engine.memory[block]
            held = content.slots[group.block_size :] if content and content.group == index else ()
            if held != (prefix,):
                yield because(
                    reason(
                        "is_cached",
                        "block {block} of {engine} is cached as prefix "
                        "{prefix:quoted} of group {group}, which includes the token "
                        "after the block",
                    ),
                    reason(
                        "drafter_computed",
                        "its drafter computed the block as part of {held:listed}",
                        held=held,
                    ),
                    engine=engine.name,
                    group=index,
                    block=block,
                    prefix=prefix,
                )


INVARIANT = Invariant(
    id="drafter_holds_its_key",
    name="a drafter has computed a cached block with the next token that the block's hash covers",
    origin="vllm#50438",
    severity=Severity.LOST_PERFORMANCE,
    check=EachEngine(check),
    needs=(Need.DRAFTED,),
    subjects=(Subject.COUNTED, Subject.CACHED_BLOCK),
    killed_by="next_token_not_hashed",
)
