"""P and D as two real engines on the CPU, with real NIXL, under the sanitizer."""

import importlib.util
from pathlib import Path

import pytest

from tests.engine.comparisons import is_content
from tests.engine.pair import decode, free_port, pair, prefill, prompts, transfer
from tests.engine.process import OPTIONS
from tests.engine.workloads import add, tokens

pytestmark = [
    pytest.mark.live,
    pytest.mark.engine,
    pytest.mark.skipif(not importlib.util.find_spec("nixl"), reason="nixl is not installed"),
]


def test_decode_answers_as_an_engine_that_is_alone(tmp_path: Path) -> None:
    given = prompts()
    with pair(tmp_path, "raise") as (p, d):
        small = {"num_gpu_blocks_override": 13}
        p.send(["engine", "full", OPTIONS | {"kv_transfer_config": transfer("kv_producer")}])
        d.send(
            ["engine", "full", OPTIONS | small | {"kv_transfer_config": transfer("kv_consumer")}]
        )
        for side in (p, d):
            built = side.receive()
            assert built.error is None, built.error
        alone = decode(d, given, {}, ["run"], ["reset"])
        assert alone.error is None, alone.error
        before = d.take(["preempted"]).results[0]

        loads = prefill(p, given)
        remote = decode(d, given, loads, ["run"], ["preempted"], ["loaded"])
        assert remote.error is None, remote.error
        for name in given:
            assert remote.outputs[name].tokens == alone.outputs[name].tokens
        assert remote.results[-3] > before
        assert remote.results[-2] == sum(map(len, given.values()))

        # P frees what D has read. What D aborts before it reads is freed, too.
        more = {"e": tokens(25, 120), "f": tokens(26, 80)}
        loads = prefill(p, more)
        aborted = decode(d, more, loads, ["abort", "e"])
        assert aborted.error is None, aborted.error
        freed = p.take(add("tick", tokens(27, 5), 4), ["run"], ["reset"])
        assert freed.error is None, freed.error

        # Nobody listens where D is to load from: it computes the prompt.
        d.take(["reset"])
        nobody = {"remote_engine_id": "nobody", "remote_port": free_port()}
        lost = {"a": prefill(p, {"a": given["a"]})["a"] | nobody}
        computed = decode(d, {"a": given["a"]}, lost)
        assert computed.error is None, computed.error
        assert computed.outputs["a"].tokens == alone.outputs["a"].tokens
    for side in (p, d):
        is_content(side)
    assert p.judged["offer_has_tokens"]
    assert d.judged["nothing_reused_under_transfer"]
