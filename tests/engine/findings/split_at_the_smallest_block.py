"""Hidden states are extracted from a Mamba hybrid, in smaller blocks than those of its states."""

from collections.abc import Iterator

from tests.engine.findings.shown import INSIDE, Engines, Seen, Shown
from tests.engine.workloads import tokens

FIRST = tokens(1, 200)
NEXT = FIRST[:130] + tokens(2, 20)


def look(engines: Engines) -> Iterator[Seen]:
    """A prompt of several chunks, and then one that shares its first 130 tokens."""
    engine = engines["E"]
    sizes = {size for _, size in engine.inside("groups")}
    assert sizes == {32, 64}, sizes
    cold = engine.ask(NEXT)
    assert engine.reset()
    engine.ask(FIRST)
    warm = engine.ask(NEXT)
    assert warm.cached == 128, f"{warm.cached} tokens are cached"
    yield Seen("tokens, after a prompt with the same prefix", warm.tokens, cold.tokens)


SHOWN = Shown(
    look,
    {
        "E": (
            "nemotron",
            {
                "max_num_batched_tokens": 96,
                "mamba_cache_mode": "align",
                "prefix_cache_retention_interval": 64,
                "kv_transfer_config": {
                    "kv_connector": "Extracting",
                    "kv_connector_module_path": "tests.engine.findings.extracting",
                    "kv_role": "kv_producer",
                },
                "speculative_config": {
                    "method": "extract_hidden_states",
                    "num_speculative_tokens": 1,
                    "draft_model_config": {
                        "hf_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]}
                    },
                },
            },
        )
    },
    before=(["call", f"{INSIDE}:hybrids_over_nixl"],),
)
