"""An attention kernel reads whole blocks, also the slots that are not written yet. Where the bytes
of a block were a state before, or numbers of another precision, they may be no numbers at all when
they are read as this layer's (vllm#35219, vllm#47574). So the workers erase such a block before its
first step."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Pages, StartedWorker, Startup
from kvproof.model.plans.startup import Layer
from kvproof.model.severity import Severity

READ_WHOLE = ("full", "sink", "window", "chunked", "mla", "window mla")
"""The kinds of layers whose blocks are read by an attention kernel."""


def judge(start: Startup) -> Iterator[Because]:
    """What a request takes without erasing holds no values of another kind."""
    taken = dict(start.run.unerased) if start.run else {}
    for index, worker in enumerate(start.workers):
        for group, block in taken.items():
            met = _meets(worker, group)
            if met is not None:
                yield because(
                    reason(
                        "shared",
                        "worker {worker}: a block of {one} ({kind}) has the bytes of one of "
                        "{other} ({of})",
                        worker=index,
                        one=met[0],
                        kind=worker.layers[met[0]].words,
                        other=met[1],
                        of=worker.layers[met[1]].words,
                        feature=_feature(worker, group, *met),
                    ),
                    reason(
                        "not_erased",
                        "a request takes block {block} for group {group}, and the workers do not "
                        "erase it",
                        block=block,
                        group=group,
                    ),
                )


def _meets(worker: StartedWorker, group: int) -> tuple[str, str] | None:
    """A layer of this group, and one of another group whose values in the same bytes are of
    another kind."""
    own = worker.groups[group].layers
    pages = [each for each in worker.pages if each.layer in worker.layers]
    for one in (each for each in pages if each.layer in own):
        for other in (each for each in pages if each.layer not in own):
            layers = worker.layers[one.layer], worker.layers[other.layer]
            if _share(one, other) and _differ(*layers):
                return one.layer, other.layer
    return None


def _feature(worker: StartedWorker, group: int, one: str, other: str) -> str:
    """What is different between such blocks: a vLLM that erases none of one kind may erase those of
    another."""
    held = "states" if worker.layers[other].kind == "mamba" else "another precision"
    own = {worker.layers[name].bytes for name in worker.groups[group].layers}
    several = ", in a group of several precisions" if len(own) > 1 else ""
    return f"{worker.layers[one].kind} after {held}{several}"


def _share(one: Pages, other: Pages) -> bool:
    """Whether the pages of a block share bytes."""
    apart = one.start + one.size <= other.start or other.start + other.size <= one.start
    return one.buffer == other.buffer and not apart


def _differ(one: Layer, other: Layer) -> bool:
    """Whether one layer may read what the other wrote, and not as the numbers that they were."""
    return one.kind in READ_WHOLE and (other.kind == "mamba" or one.bytes != other.bytes)


RULE = EngineRule(
    id="new_blocks_have_no_old_values",
    name="a block that held states or numbers of another precision is erased before it is read",
    origin="KVCacheConfig.needs_kv_cache_zeroing; vllm#47574, vllm#43961",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
