"""Readers of KV events, and routers that ask an engine for its cache groups, decide by the reported
kind which blocks of a prompt a group keeps. "unknown" says nothing, although vLLM has made one
group of layers that keep the same (vllm#51218): a router that knows nothing sends the prompt
elsewhere, and KV is computed again."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.startup import StartedGroup, Startup
from kvproof.model.severity import Severity

KEEP_ALL = frozenset({"full_attention", "mla_attention"})

REPORTED = {
    "mamba": frozenset({"mamba"}),
    "window": frozenset({"sliding_window"}),
    "window mla": frozenset({"sliding_window_mla"}),
    "chunked": frozenset({"chunked_local_attention"}),
}
"""What a group may be reported as, by what its table keeps; KEEP_ALL where it keeps all tokens."""


def judge(start: Startup) -> Iterator[Because]:
    """Each group with layers is reported as what it keeps."""
    for where, groups in _places(start):
        for number, group in enumerate(groups):
            may = REPORTED.get(group.kind, KEEP_ALL)
            if group.reported and group.layers and group.reported not in may:
                yield because(
                    reason(
                        "keeps",
                        "group {group} of {where} keeps: {kind}, {tokens} tokens",
                        group=number,
                        where=where,
                        kind=group.kind,
                        tokens=group.window or "all",
                    ),
                    reason("reported", "vLLM reports it as {reported}", reported=group.reported),
                )


def _places(start: Startup) -> Iterator[tuple[str, tuple[StartedGroup, ...]]]:
    yield "the scheduler", start.groups
    for index, worker in enumerate(start.workers):
        yield f"worker {index}", worker.groups


RULE = EngineRule(
    id="reported_kind_is_kept",
    name="a cache group is reported as the kind that it keeps",
    origin="get_kv_cache_spec_kind; vllm#51218",
    severity=Severity.LOST_PERFORMANCE,
    judge=judge,
)
