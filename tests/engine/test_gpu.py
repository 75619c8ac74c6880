"""What only a GPU shows: steps that overlap, and vLLM's own copies."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kvproof.invariants.of_bytes import CACHED, LOADED, TRANSFERRED
from tests import lent
from tests.engine.comparisons import is_content
from tests.engine.conftest import DEVICES, need_cuda
from tests.engine.ordinary import pool
from tests.engine.pair import built, decode, freed, pair, prefill, prompts, recorded
from tests.engine.process import Process
from tests.engine.test_planted import FOUND
from tests.engine.workloads import FIRST, KINDS, ORDINARY, add

OPTIONS = DEVICES["cuda"]
BYTES = {"KVPROOF_BYTES": "1"}

TIERS: dict[str, dict[str, Any]] = {
    "OffloadingConnector": {"cpu_bytes_to_use": 2**26},
    "SimpleCPUOffloadConnector": {"cpu_bytes_to_use": 2**26},
}
"""Connectors of vLLM whose workers copy between a GPU and memory of the CPU."""

STORED: list[list[Any]] = [
    add("saved", FIRST, 8),
    ["run"],
    add("other", [7] * 40, 8),
    ["run"],
    ["reset"],
    add("loaded", FIRST, 8),
    ["run"],
]

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True, scope="module")
def _cuda() -> None:
    need_cuda()


@pytest.mark.parametrize("name", ["full", "window"])
def test_bytes_stay(name: str, tmp_path: Path) -> None:
    """Also where a step is scheduled before the GPU has ended the step before."""
    with Process(tmp_path, mode="raise", environment=BYTES, inherited=lent.BEFORE) as process:
        for asynchronous in (True, False):
            options = OPTIONS | KINDS[name].options | {"async_scheduling": asynchronous}
            process.served(["engine", KINDS[name].model, options])
            process.served(*ORDINARY)
            judged = process.take(["call", "tests.engine.asked:asked"]).results[0]
            assert judged[CACHED] > 15
    assert process.complaints == [], process.log


@pytest.mark.parametrize("connector", TIERS)
def test_a_tier_brings_back_the_bytes_that_were_computed(connector: str, tmp_path: Path) -> None:
    """vLLM's own worker copies, on streams of its own."""
    tier = {
        "kv_connector": connector,
        "kv_role": "kv_both",
        "kv_connector_extra_config": TIERS[connector],
    }
    options = OPTIONS | {"num_gpu_blocks_override": 40, "kv_transfer_config": tier}
    with Process(tmp_path, mode="raise", environment=BYTES, inherited=lent.BEFORE) as process:
        process.served(["engine", "full", options])
        answer = process.served(*STORED)
        judged = process.take(["call", "tests.engine.asked:asked"]).results[0]
    assert answer.outputs["loaded"].cached > 0
    assert answer.outputs["loaded"].tokens == answer.outputs["saved"].tokens
    assert judged[LOADED] > 0
    assert process.complaints == [], process.log


@pytest.mark.skipif(not importlib.util.find_spec("nixl"), reason="nixl is not installed")
@pytest.mark.parametrize("buffer", ["cuda", "cpu"])
def test_decode_gets_the_bytes_of_prefill(buffer: str, as_json: Any, tmp_path: Path) -> None:
    """NIXL copies from the GPU memory of P, or from a copy that P makes in memory of the CPU."""
    given = prompts()
    environment = BYTES | {"UCX_TLS": "tcp,self,sm,cuda"}
    started = pair(tmp_path, "raise", environment=environment, inherited=lent.BEFORE)
    with started as (p, d):
        built(p, d, OPTIONS, buffer)
        remote = decode(d, given, prefill(p, given), ["run"], ["preempted"], ["loaded"], ["reset"])
        assert remote.results[-4] > 0
        assert remote.results[-3] > 0
        alone = decode(d, given, {})
        for name in given:
            assert remote.outputs[name].tokens[:8] == alone.outputs[name].tokens[:8], name
        freed(p)
        files = recorded(p, d)
    for side in (p, d):
        is_content(side)
    assert p.judged["offer_has_tokens"]
    assert d.judged["nothing_reused_under_transfer"]
    code, output = as_json("report", *files)
    assert (code, output["findings"]) == (0, []), output
    assert output["judged"][TRANSFERRED] >= len(given)


@pytest.mark.parametrize("mistake", FOUND)
def test_a_mistake_in_vllm_ends_a_watched_engine(mistake: str, tmp_path: Path) -> None:
    from tests.engine.mistakes import MISTAKES

    with Process(tmp_path, mode="raise", inherited=lent.BEFORE) as process:
        plant = ["call", "tests.engine.mistakes:plant", mistake]
        process.served(plant, ["engine", "full", OPTIONS | pool()])
        answer = process.take(["call", "tests.engine.ordinary:work"])
    assert any(f"VIOLATED {each}" in process.log for each in MISTAKES[mistake].names), answer.error
