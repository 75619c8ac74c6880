"""A page has room for the tokens of a block of its group, or for a state. If it is smaller, the end
of a block is written into the next one."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import Startup
from kvproof.model.severity import Severity


def judge(start: Startup) -> Iterator[Because]:
    """Each layer of a worker has pages, once, and they are large enough."""
    for index, worker in enumerate(start.workers):
        blocks = {name: group.block for group in worker.groups for name in group.layers}
        for name, layer in worker.layers.items():
            tokens = 1 if layer.kind == "mamba" else blocks.get(name, layer.block)
            needs = reason(
                "needs",
                "a block of {name} of worker {worker} has {tokens} tokens of {bytes} bytes",
                name=name,
                worker=index,
                tokens=tokens,
                bytes=layer.content_bytes,
            )
            found = [pages for pages in worker.pages if pages.layer == name]
            if len(found) != 1:
                yield because(needs, reason("places", "it has {count} places", count=len(found)))
            elif min(found[0].size, found[0].stride) < tokens * layer.content_bytes:
                yield because(
                    needs,
                    reason(
                        "page",
                        "its pages have {size} bytes, one each {stride} bytes",
                        size=found[0].size,
                        stride=found[0].stride,
                    ),
                )


RULE = EngineRule(
    id="page_holds_its_block",
    name="a page of a layer has room for a block of its tokens, or for its state",
    origin="KVCacheSpec.page_size_bytes; vllm#32283",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
