"""A request with higher priority preempts another one in the step that would compute its blocks."""

from collections.abc import Iterator

from tests.engine.findings.shown import Engines, Seen, Shown
from tests.engine.workloads import tokens

LOW, HIGH = tokens(3, 200), tokens(4, 32)


def look(engines: Engines) -> Iterator[Seen]:
    """The preempted request hits a block that was never computed."""
    engine = engines["E"]
    alone = engine.ask(LOW, 4).tokens
    assert engine.reset()
    engine.fill(200, 3)
    answer = engine.take(
        ["add", "low", LOW, {"max_tokens": 4, "priority": 1}],
        ["steps", 1],
        ["add", "high", HIGH, {"max_tokens": 4, "priority": 0}],
        ["run"],
    )
    yield Seen("tokens of the preempted request", answer.outputs["low"].tokens, alone)


SHOWN = Shown(
    look,
    {
        "E": (
            "full",
            {
                "max_model_len": 256,
                "scheduling_policy": "priority",
                "max_num_batched_tokens": 96,
                "long_prefill_token_threshold": 64,
                "num_gpu_blocks_override": 9,
            },
        )
    },
    nightly=False,
    named=("cached_block_holds_its_key",),
)
