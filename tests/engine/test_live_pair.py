"""P and D as two real engines on the CPU, with real NIXL, under the sanitizer, bytes included."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kvproof.invariants.of_bytes import TRANSFERRED
from tests.engine.comparisons import is_content
from tests.engine.pair import (
    built,
    decode,
    free_port,
    freed,
    pair,
    prefill,
    prompts,
    recorded,
)
from tests.engine.process import OPTIONS
from tests.engine.workloads import tokens

pytestmark = [
    pytest.mark.live,
    pytest.mark.engine,
    pytest.mark.nightly,
    pytest.mark.skipif(not importlib.util.find_spec("nixl"), reason="nixl is not installed"),
]


def test_decode_answers_as_an_engine_that_is_alone_from_the_bytes_of_prefill(
    as_json: Any, tmp_path: Path
) -> None:
    given = prompts()
    with pair(tmp_path, "raise", environment={"KVPROOF_BYTES": "1"}) as (p, d):
        built(p, d, OPTIONS)
        loads = prefill(p, given)
        remote = decode(d, given, loads, ["run"], ["preempted"], ["loaded"])
        assert remote.results[-3] > 0
        assert remote.results[-2] == sum(map(len, given.values()))
        freed(p)
        files = recorded(p, d)

        # P frees what D has read. What D aborts before it reads is freed, too.
        more = {"e": tokens(25, 120), "f": tokens(26, 80)}
        loads = prefill(p, more)
        decode(d, more, loads, ["abort", "e"])
        freed(p)
        p.served(["reset"])

        d.take(["reset"])
        alone = decode(d, given, {}, ["run"], ["reset"])
        for name in given:
            assert remote.outputs[name].tokens == alone.outputs[name].tokens

        # Nobody listens where D is to load from: it computes the prompt.
        nobody = {"remote_engine_id": "nobody", "remote_port": free_port()}
        lost = {"a": prefill(p, {"a": given["a"]})["a"] | nobody}
        computed = decode(d, {"a": given["a"]}, lost)
        assert computed.outputs["a"].tokens == alone.outputs["a"].tokens
    for side in (p, d):
        is_content(side)
    assert p.judged["offer_has_tokens"]
    assert p.judged[TRANSFERRED] > 0  # until they were freed
    assert d.judged["nothing_reused_under_transfer"]
    code, output = as_json("report", *files)
    assert (code, output["findings"]) == (0, []), output
    assert output["requests"] == len(given)
    assert output["judged"][TRANSFERRED] >= len(given)
