"""A prefill chunk of a Mamba request ended inside a block. vLLM hashed the state at that token as
the state at the end of the whole block (vllm#43559). Every later hit on this block then continued
from a wrong state."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model import config
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, Key
from kvproof.model.subjects import Subject


def promised(cfg: config.EngineConfig, key: Key) -> tuple[str, ...]:
    """What a block cached under this key must hold, slot by slot. The slots after these are free to
    differ."""
    group = cfg.groups[key[0]]
    prefix = key[1][: len(key[1]) - cfg.hash_lookahead_tokens]
    if not group.attention:
        return (prefix,)
    first = (len(prefix) - 1) // group.block_size * group.block_size
    return tuple(prefix[: end + 1] for end in range(first, len(prefix)))


def check(cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Every cached block holds exactly what its key names."""
    cfg = cluster.engine(engine.name)
    for key, blocks in engine.cached:
        expected = promised(cfg, key)
        for block in blocks:
            content = engine.memory[block]
            held = content.slots if content and content.group == key[0] else ()
            if held[: len(expected)] != expected:
                what = "the KV of" if cfg.groups[key[0]].attention else "the state after"
                yield because(
                    reason(
                        "must_hold",
                        "block {block} of {engine} is cached as prefix "
                        f"{{prefix:quoted}} of group {{group}} and must hold {what} "
                        "{expected:listed}",
                        expected=expected,
                    ),
                    reason(
                        "holds",
                        f"it holds {what} {{held:listed}}"
                        if held
                        else "it holds nothing of this group",
                        held=held,
                    ),
                    engine=engine.name,
                    group=key[0],
                    block=block,
                    prefix=key[1],
                )


INVARIANT = Invariant(
    id="cached_block_holds_its_key",
    name="a cached block holds exactly the KV or the state of the prefix that its key names",
    origin="vllm#51113",
    severity=Severity.WRONG_TOKENS,
    check=EachEngine(check),
    needs=(Need.CONTENTS,),
    subjects=(
        Subject.READ,
        Subject.SCHEDULED,
        Subject.COMPUTED,
        Subject.COPIES,
        Subject.CACHED_BLOCK,
    ),
    killed_by="no_align_split",
)
