"""The bytes of blocks on real engines: they do not change by themselves, and a change is found."""

import re
from pathlib import Path

import pytest

from kvproof.invariants.of_bytes import CACHED, LOADED, NULL
from tests.engine.process import OPTIONS, Process
from tests.engine.workloads import FIRST, KINDS, LOADING, ORDINARY, STORE, add, tokens

pytestmark = [pytest.mark.live, pytest.mark.engine]

ON = {"KVPROOF_BYTES": "1"}
ANSWERED = ("a", "b", "c", "d", "f", "g", "h", "i")
"""The requests of the ordinary workload that are not aborted."""

NO_ORACLE = "mamba"
"""On the CPU, the tokens of this model depend on where a prompt is divided."""


def cold(models: Path, *kinds: str) -> dict[str, dict[str, list[int]]]:
    """What an engine without a prefix cache answers to each prompt by itself."""
    alone = {"enable_prefix_caching": False, "max_num_seqs": 1}
    added = [each for each in ORDINARY if each[0] == "add" and each[1] in ANSWERED]
    found = {}
    with Process(models) as process:
        for kind in kinds:
            answer = process.served(["engine", KINDS[kind].model, OPTIONS | alone], *added, ["run"])
            found[kind] = {name: output.tokens for name, output in answer.outputs.items()}
    return found


@pytest.mark.nightly
@pytest.mark.parametrize(
    "names",
    [("full", "mamba"), pytest.param(("window", "drafts"), marks=pytest.mark.nightly)],
    ids=" ".join,
)
def test_bytes_stay_and_tokens_are_those_of_a_cold_engine(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    warm = []
    with Process(tmp_path, mode="raise", environment=ON) as process:
        for name in names:
            kind = KINDS[name]
            for asynchronous in kind.ways:
                options = OPTIONS | kind.options | {"async_scheduling": asynchronous}
                process.served(["engine", kind.model, options])
                answer = process.served(*ORDINARY)
                judged = process.take(["call", "tests.engine.asked:asked"]).results[0]
                assert judged[CACHED] > 15, name
                assert bool(judged.get(NULL)) == (name != "mamba"), name
                warm.append((kind.model, answer))
    assert process.complaints == [], process.log
    if "mamba" in names:
        assert f"because a Mamba layer may write to it: {NULL}" in process.log
    expected = cold(tmp_path, *({model for model, _ in warm} - {NO_ORACLE}))
    for model, answer in warm:
        if model != NO_ORACLE:
            assert {name: answer.outputs[name].tokens for name in ANSWERED} == expected[model]


@pytest.mark.parametrize(
    ("model", "group"),
    [("full", 0), *(pytest.param("mamba", group, marks=pytest.mark.nightly) for group in (0, 1))],
)
def test_changed_bytes_are_found(model: str, group: int, tmp_path: Path) -> None:
    prompt = tokens(30, 200)
    with Process(tmp_path, mode="warn", environment=ON) as process:
        process.take(["engine", model, OPTIONS | KINDS[model].options])
        call = ["call", "tests.engine.memory:change", group]
        hit = process.served(add("r", prompt, 4), ["run"], call, add("again", prompt, 4), ["run"])
        flood = [add(f"f{seed}", tokens(seed, 190), 4) for seed in range(40, 46)]
        evicted = process.served(call, *flood, ["run"])
        null = ["call", "tests.engine.memory:change_null"]
        process.served(null, add("last", prompt, 40), ["run"])
    words = rf"VIOLATED {CACHED} \(wrong tokens\): block (\d+) of E \(?.*are not the same when "
    words += "(.*); record: "
    found = re.findall(words, process.log)
    assert (str(hit.results[2]), "again") in [
        (block, who.partition("-")[0]) for block, who in found
    ]
    assert (str(evicted.results[0]), "it is evicted") in found
    assert len(found) == 2
    assert (f"VIOLATED: {NULL}, 1 time\n" in process.log) == (model == "full")


@pytest.mark.nightly
def test_a_store_brings_back_the_bytes_that_were_computed(tmp_path: Path) -> None:
    """Three loads, of which one fails and is computed. The last load is wrong."""
    extra = {"kv_connector_extra_config": {"shared_storage_path": str(tmp_path / "store")}}
    options = OPTIONS | KINDS["store"].options | {"kv_transfer_config": STORE | extra}
    with Process(tmp_path, mode="warn", environment=ON) as process:
        process.served(["engine", "full", options], *LOADING)
        assert "VIOLATED" not in process.printed(), process.printed()
        judged = process.take(["call", "tests.engine.asked:asked"]).results[0]
        wrongly = ["call", "tests.engine.failing_store:pair_wrongly"]
        process.served(["reset"], wrongly, add("wrong", FIRST, 8), ["run"])
    blocks = len(FIRST) // OPTIONS["block_size"]
    assert judged[LOADED] == 2 * blocks
    found = re.findall(rf"VIOLATED {LOADED} .* when (wrong\S*) has loaded it; rec", process.log)
    assert len(found) == 3, process.log  # each kind is printed three times
    assert f"VIOLATED: {LOADED}, {blocks} times" in process.log
    [verdict] = re.findall(r"kvproof: (\d+ violation.* in .*)", process.log)
    assert verdict.endswith("; 1 load of FailingStore was trusted, not judged")


@pytest.mark.nightly
def test_the_memory_of_a_worker_in_another_process_is_unknown(tmp_path: Path) -> None:
    elsewhere = OPTIONS | {"distributed_executor_backend": "mp"}
    with Process(tmp_path, mode="raise", environment=ON) as process:
        process.served(["engine", "full", elsewhere], add("r", [5] * 99, 4), ["run"])
    [complaint] = process.complaints
    why = "the memory of the layer model.layers.0.self_attn.attn is not in this process"
    assert complaint == f"UNKNOWN: the bytes of 1 engine were not judged: {why}"
    assert CACHED not in process.judged
    assert process.judged["pool_adds_up"]
